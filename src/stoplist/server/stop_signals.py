"""The signals that stop a server process. Source: docs/interface.md section D1 (DRAIN_S)."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals(stop: asyncio.Event, force: asyncio.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT within the context, and `force` on a second SIGINT.

    Stay in the context until all resources are released: a signal after it would end the process in the middle of
    that. For the main thread only, inside the running loop.
    """
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if number == signal.SIGINT and stop.is_set():
            force.set()
        stop.set()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
