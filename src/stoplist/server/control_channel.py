"""What the parent of several server processes and each of them tell one another: one JSON object a line.

A worker says `started` or why it could not (`failed`), that it was `asked` whether it is ready, and answers with its
`metrics`; the parent asks for those, passes `asked` on, and tells one that stops to `hurry`. When the line ends, the
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
    """One message."""

    about: Literal["started", "failed", "asked", "metrics", "force_stop"]
    text: str = ""
    metrics: list[MetricFamily] = []


class ControlChannel:
    """One end of the connection between a parent and a worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> "ControlChannel":
        """The line over one end of a socket pair."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_MAX_BYTES))

    def send(self, message: ControlMessage) -> None:
        """Sent, unless the other side is gone."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def messages(self) -> AsyncIterator[ControlMessage]:
        """What the other side says, until it is gone."""
        with contextlib.suppress(ConnectionError):
            # Without its end it is what a process said that was killed in the middle of it.
            while (text := await self._reader.readline()).endswith(b"\n"):
                yield msgspec.json.decode(text, type=ControlMessage)

    async def close(self) -> None:
        """Everything said has been sent, as far as the other side still takes it."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
