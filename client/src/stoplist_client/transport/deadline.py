"""Ends a blocking request at its deadline, however slowly its answer arrives, or soon after its client is closed.

The timeouts of httpx2 hold for each read: an endless stream of interim answers, or of single bytes, meets all of them.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

# The events of httpx2 that have a new stream as their result: TLS makes one of its own.
_NEW_STREAM = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
_SLICE_S = 1.0


def _never() -> bool:
    return False


class TotalTimeout(httpx2.ReadTimeout):
    """The request was not answered completely within its total time."""


class _Deadline(threading.local):
    """The time by the monotonic clock at which the request of this thread ends, and whether it has to end before."""

    at_s: float | None = None
    is_ended: Callable[[], bool] = staticmethod(_never)


_deadline = _Deadline()


@contextmanager
def limited_to(total_s: float, is_ended: Callable[[], bool] = _never) -> Iterator[None]:
    """Let reads in this thread raise TotalTimeout once this many seconds have passed, or once `is_ended` returns true.

    `is_ended` is asked once a second.
    """
    _deadline.at_s, _deadline.is_ended = time.monotonic() + total_s, is_ended
    try:
        yield
    finally:
        _deadline.at_s, _deadline.is_ended = None, _never


def limit_new_stream(event: str, details: dict[str, Any]) -> None:
    """Let a new connection heed the deadline of whichever thread reads from it: a `trace` callback of httpx2."""
    if not event.endswith(_NEW_STREAM):
        return
    from httpcore2 import ReadTimeout  # noqa: PLC0415 - slow to import, and loaded once there is a connection

    stream = details["return_value"]
    read = stream.read

    def read_in_time(max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes
        if (total_ends_s := _deadline.at_s) is None:
            data = read(max_bytes, timeout)
            return data
        ends_s = total_ends_s if timeout is None else min(total_ends_s, time.monotonic() + timeout)
        while True:
            now_s = time.monotonic()
            if now_s >= total_ends_s or _deadline.is_ended():
                raise TotalTimeout("total_s has passed, or the client was closed")
            left_s = max(ends_s - now_s, 0.001)
            try:
                data = read(max_bytes, min(left_s, _SLICE_S))
                return data
            except ReadTimeout:
                if left_s <= _SLICE_S:
                    raise

    stream.read = read_in_time
