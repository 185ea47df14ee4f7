"""A worker process: serves on the sockets of its supervisor, and stops when the supervisor is gone.

Source: docs/interface.md section D1 (WORKERS).
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

from stoplist.errors import StoplistError
from stoplist.server.control_channel import ControlChannel, ControlMessage
from stoplist.server.lifecycle import ServerProcess, run_loop, run_server
from stoplist.server.stop_signals import stop_on_signals
from stoplist.settings import Settings
from stoplist.web.metrics import families_of

_LOG = logging.getLogger(__name__)


def main(settings: Settings, sockets: list[socket.socket], end: socket.socket) -> None:
    """Run a worker process to its end. `end` is its end of the control channel."""
    run_loop(settings, _run(settings, sockets, end))


async def _run(settings: Settings, sockets: list[socket.socket], end: socket.socket) -> None:
    channel = await ControlChannel.over(end)
    process = ServerProcess(
        sockets=sockets,
        on_probe=lambda: channel.send(ControlMessage("readiness_probe")),
        on_started=lambda: channel.send(ControlMessage("started")),
    )
    with stop_on_signals(process.stop, process.force):
        try:
            with _obeying(channel, process):
                await run_server(process, settings)
                channel.send(_metrics_of(process))
        except StoplistError as error:
            channel.send(ControlMessage("failed", text=error.text))
        except Exception:
            # Logged here, not by multiprocessing: the text of an exception may hold what a log must not.
            _LOG.exception("A worker has failed")
            channel.send(ControlMessage("failed", text="it failed; the log says more"))
        finally:
            await channel.close()
            for sock in sockets:
                sock.close()


@contextlib.contextmanager
def _obeying(channel: ControlChannel, process: ServerProcess) -> Iterator[None]:
    """Carry out the messages of the supervisor for the duration of the context; stop if the supervisor is gone."""

    async def listen() -> None:
        async for message in channel.messages():
            if message.about == "readiness_probe":
                process.readiness.note_probe_elsewhere()
            elif message.about == "metrics":
                channel.send(_metrics_of(process))
            elif message.about == "stop":
                stop_with_all()
            elif message.about == "force_stop":
                process.force.set()
        stop_with_all()

    def stop_with_all() -> None:
        process.whole_stop.set()
        process.stop.set()

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()


def _metrics_of(process: ServerProcess) -> ControlMessage:
    return ControlMessage("metrics", metrics=families_of(process.metrics.registry) if process.metrics else [])
