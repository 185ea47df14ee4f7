"""The body of a request, read within a size limit, a memory quota and a deadline.

The deadline keeps a trickling body from holding a request open. Sizes: docs/interface.md sections D2 and D6.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from stoplist.errors import BadRequest, RateLimited

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

DEADLINE_S = 60.0
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
    deadline_s: float = DEADLINE_S,
) -> bytes:
    """Return the whole body, which may have `max_bytes` and must arrive within `deadline_s`.

    BadRequest if it is larger or late (an announced size is refused before anything is read), ClientGone if the client
    disconnects. `reserve` is called with the length of every part and may raise. Header names are in lower case.
    """
    if _announced_bytes(headers) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(deadline_s):
            return await _read(receive, max_bytes, reserve)
    except TimeoutError:
        raise BadRequest(f"The body did not arrive within {deadline_s:g} seconds.") from None


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
