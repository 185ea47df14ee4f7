"""One of several server processes: serves on the sockets of its parent, and ends when that is gone.

Source: docs/interface.md section D1 (WORKERS).
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

from stoplist.errors import StoplistError
from stoplist.server.control_channel import ControlChannel, ControlMessage
from stoplist.server.http_server import stop_on_signals
from stoplist.server.lifecycle import ServerProcess, run_loop, run_server
from stoplist.settings import Settings
from stoplist.web.metrics import families_of

_LOG = logging.getLogger(__name__)


def main(settings: Settings, sockets: list[socket.socket], end: socket.socket) -> None:
    """The whole life of a worker process. `end` is its end of the line to the parent."""
    run_loop(settings, _live(settings, sockets, end))


async def _live(settings: Settings, sockets: list[socket.socket], end: socket.socket) -> None:
    channel = await ControlChannel.over(end)
    process = ServerProcess(
        sockets=sockets,
        tell_asked=lambda: channel.send(ControlMessage("asked")),
        on_started=lambda: channel.send(ControlMessage("started")),
    )
    with stop_on_signals(process.stop, process.force):
        try:
            with _heard(channel, process):
                await run_server(process, settings)
                channel.send(_metrics_of(process))
        except StoplistError as error:
            channel.send(ControlMessage("failed", text=error.text))
        except Exception:
            # Here, and not by what started the process: the text of an exception may hold what a log must not.
            _LOG.exception("A worker has failed")
            channel.send(ControlMessage("failed", text="it failed, and the log holds more"))
        finally:
            await channel.close()
            for sock in sockets:
                sock.close()


@contextlib.contextmanager
def _heard(channel: ControlChannel, process: ServerProcess) -> Iterator[None]:
    """While this lasts the parent is listened to; without a parent there is nobody to serve for."""

    async def listen() -> None:
        async for message in channel.messages():
            if message.about == "asked":
                process.readiness.note_probe_elsewhere()
            elif message.about == "metrics":
                channel.send(_metrics_of(process))
            elif message.about == "force_stop":
                process.force.set()
        process.stop.set()

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()


def _metrics_of(process: ServerProcess) -> ControlMessage:
    return ControlMessage("metrics", metrics=families_of(process.metrics.registry) if process.metrics else [])
