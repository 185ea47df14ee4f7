"""The body of a request, read within a size limit, a memory quota and the deadline of its connection.

Sizes: docs/interface.md sections D2 and D6.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeVar

from stoplist.errors import BadRequest, RateLimited
from stoplist.web.request_context import BODY_PROGRESS, header_value

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

PROGRESS_BYTES = 512 * 1024
"""The least that must arrive of a streamed body within the deadline of a connection."""

_MAX_LENGTH_DIGITS = 18


class ClientGone(Exception):
    """The client disconnected before its request was complete, so no answer can be sent."""


class MemoryQuota:
    """Bounds the memory that the requests of each client use at once, for bodies and for pages."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._reserved: Counter[str] = Counter()

    @contextmanager
    def reserving(self, client_id: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves so many bytes until the end of the context; RateLimited beyond the quota."""
        request_bytes = 0

        def reserve(size_bytes: int) -> None:
            nonlocal request_bytes
            if self._reserved[client_id] + size_bytes > self._max_bytes:
                raise RateLimited(
                    f"More than {self._max_bytes >> 20} MiB of this key are on their way at once: "
                    "send fewer batches, or ask for fewer pages, at a time.",
                    retry_after_s=1,
                )
            self._reserved[client_id] += size_bytes
            request_bytes += size_bytes

        try:
            yield reserve
        finally:
            self._reserved[client_id] -= request_bytes
            if not self._reserved[client_id]:
                del self._reserved[client_id]


async def read_body(
    receive: Receive,
    headers: list[tuple[bytes, bytes]],
    *,
    max_bytes: int,
    reserve: Callable[[int], None] | None = None,
) -> bytes:
    """Return the whole body, which may have `max_bytes`.

    BadRequest if it is larger (an announced size is refused before anything is read), or late: `receive` then raises
    TimeoutError. ClientGone if the client disconnects. `reserve` is called with the length of every part and may raise.
    Header names are in lower case.
    """
    if _announced_bytes(headers) > max_bytes:
        raise _too_large(max_bytes)
    try:
        return await _read(receive, max_bytes, reserve)
    except TimeoutError as late:
        raise BadRequest(str(late)) from None


async def read_beginning(receive: Receive, *, max_bytes: int) -> tuple[bytes, bool]:
    """Return the whole body and True, or the beginning of a late or too large body and False.

    The beginning of a too large body is at least `max_bytes` long. ClientGone if the client disconnects.
    """
    parts: list[bytes] = []
    size, more_body = 0, True
    while more_body and size <= max_bytes:
        try:
            message = await receive()
        except TimeoutError:
            return b"".join(parts), False
        body, more_body = _part(message)
        parts.append(body)
        size += len(body)
    return b"".join(parts), size <= max_bytes


class StreamedBody:
    """The body of a request that may be larger than memory and take longer than others to arrive."""

    def __init__(self, headers: list[tuple[bytes, bytes]], receive: Receive, send: Send) -> None:
        self._headers, self._receive, self._send = headers, receive, send

    @property
    def content_type(self) -> bytes:
        """Return the `Content-Type`, empty if there is none."""
        return header_value(self._headers, b"content-type")

    @property
    def announced_bytes(self) -> int:
        """Return `Content-Length`, 0 if there is none, or a huge number if the value cannot be read."""
        return _announced_bytes(self._headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        BadRequest if it stands still: the deadline of the connection restarts with each PROGRESS_BYTES. ClientGone
        if the client disconnects.
        """
        size, noted, more_body = 0, 0, True
        while more_body:
            try:
                body, more_body = _part(await self._receive())
            except TimeoutError as late:
                raise BadRequest(str(late)) from None
            size += len(body)
            if size - noted >= PROGRESS_BYTES:
                noted = size
                await self._send({"type": BODY_PROGRESS})
            yield body


async def unless_gone(result: asyncio.Future[T], receive: Receive) -> T:
    """Wait for the result while the client waits for its answer; ClientGone as soon as it disconnects."""
    gone = asyncio.ensure_future(until_disconnected(receive))
    try:
        await asyncio.wait((result, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise ClientGone
        return result.result()
    finally:
        gone.cancel()


async def until_disconnected(receive: Receive) -> None:
    """Return once the client of a received request has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass  # a GET may have a body, which means nothing


async def _read(receive: Receive, max_bytes: int, reserve: Callable[[int], None] | None) -> bytes:
    parts: list[bytes] = []
    size, more_body = 0, True
    while more_body:
        body, more_body = _part(await receive())
        if reserve is not None:
            reserve(len(body))
        parts.append(body)
        size += len(body)
        if size > max_bytes:
            raise _too_large(max_bytes)
    return b"".join(parts)


def _part(message: MutableMapping[str, Any]) -> tuple[bytes, bool]:
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


def _announced_bytes(headers: list[tuple[bytes, bytes]]) -> int:
    """Return `Content-Length`, 0 if there is none, or a huge number if the value cannot be read."""
    for name, value in headers:
        if name == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) < _MAX_LENGTH_DIGITS else 10**_MAX_LENGTH_DIGITS
    return 0


def _too_large(max_bytes: int) -> BadRequest:
    for unit, unit_bytes in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if max_bytes % unit_bytes == 0:
            return BadRequest(f"The body is larger than {max_bytes // unit_bytes} {unit}.")
    return BadRequest(f"The body is larger than {max_bytes} bytes.")
