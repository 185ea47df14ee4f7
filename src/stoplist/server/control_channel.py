"""The channel between a supervisor and each of its workers: one JSON object per line over a socket pair.

A worker sends `started`, or `failed` with the reason, `readiness_probe` when `/readyz` was requested from it, and
`metrics` when the supervisor requests them. The supervisor sends `metrics` to request them, passes `readiness_probe` on
to every worker, sends `stop` when all workers stop, and `force_stop` to cut that short. End of file means that the
other side is gone.
Source: docs/interface.md section D1 (WORKERS).
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from stoplist.web.metrics import MetricFamily

_MAX_BYTES = 16 * 1024 * 1024


class ControlMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message on a control channel; `text` is the reason of `failed`."""

    about: Literal["started", "failed", "readiness_probe", "metrics", "stop", "force_stop"]
    text: str = ""
    metrics: list[MetricFamily] = []


class ControlChannel:
    """One end of the connection between a supervisor and a worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> "ControlChannel":
        """Return the channel over one end of a socket pair."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_MAX_BYTES))

    def send(self, message: ControlMessage) -> None:
        """Send the message, or drop it if the other side is gone."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def messages(self) -> AsyncIterator[ControlMessage]:
        """Yield the messages of the other side until it is gone."""
        with contextlib.suppress(ConnectionError):
            # A line without a newline comes from a process that was killed while writing it.
            while (line := await self._reader.readline()).endswith(b"\n"):
                yield msgspec.json.decode(line, type=ControlMessage)

    async def close(self) -> None:
        """Close the channel once all messages have left, unless the other side is gone."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
