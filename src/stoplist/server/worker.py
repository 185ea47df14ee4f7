"""One of several server processes: serves on the sockets of its parent, and ends when that is gone.

Source: docs/interface.md section D1 (WORKERS).
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

from stoplist.errors import StoplistError
from stoplist.server.control_channel import Line, Word
from stoplist.server.http_server import stop_on_signals
from stoplist.server.lifecycle import Process, run_loop, serve_in
from stoplist.settings import Settings
from stoplist.web.metrics import families_of

_LOG = logging.getLogger(__name__)


def main(settings: Settings, sockets: list[socket.socket], end: socket.socket) -> None:
    """The whole life of a worker process. `end` is its end of the line to the parent."""
    run_loop(settings, _live(settings, sockets, end))


async def _live(settings: Settings, sockets: list[socket.socket], end: socket.socket) -> None:
    line = await Line.over(end)
    process = Process(
        sockets=sockets,
        tell_asked=lambda: line.say(Word("asked")),
        on_started=lambda: line.say(Word("started")),
    )
    with stop_on_signals(process.stop, process.force):
        try:
            with _heard(line, process):
                await serve_in(process, settings)
                line.say(_metrics_of(process))
        except StoplistError as error:
            line.say(Word("failed", text=error.text))
        except Exception:
            # Here, and not by what started the process: the text of an exception may hold what a log must not.
            _LOG.exception("A worker has failed")
            line.say(Word("failed", text="it failed, and the log holds more"))
        finally:
            await line.close()
            for sock in sockets:
                sock.close()


@contextlib.contextmanager
def _heard(line: Line, process: Process) -> Iterator[None]:
    """While this lasts the parent is listened to; without a parent there is nobody to serve for."""

    async def listen() -> None:
        async for word in line.words():
            if word.about == "asked":
                process.readiness.asked_elsewhere()
            elif word.about == "metrics":
                line.say(_metrics_of(process))
            elif word.about == "hurry":
                process.force.set()
        process.stop.set()

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()


def _metrics_of(process: Process) -> Word:
    return Word("metrics", metrics=families_of(process.metrics.registry) if process.metrics else [])
