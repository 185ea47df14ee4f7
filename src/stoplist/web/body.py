"""The body of a request: counted as it arrives, and never waited for without end.

The deadline keeps a trickling body from holding a request. Sizes: docs/interface.md sections D2 and D6.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from stoplist.errors import BadRequest, RateLimited

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

DEADLINE_S = 60.0
_LONGEST_NUMBER = 18


class ClientGone(Exception):
    """The client hung up before its request was whole: nobody is left to answer."""


class MemoryQuota:
    """The memory for what clients send and ask for: each may have so many bytes on their way at once."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._taken: Counter[str] = Counter()

    @contextmanager
    def of(self, client_id: str) -> Iterator[Callable[[int], None]]:
        """While this lasts the client has what it `takes`; that raises RateLimited where it would be too much."""
        of_request = 0

        def take(count: int) -> None:
            nonlocal of_request
            if self._taken[client_id] + count > self._max_bytes:
                raise RateLimited(
                    f"More than {self._max_bytes >> 20} MiB of this key are on their way at once: "
                    "send fewer batches, or ask for fewer pages, at a time.",
                    retry_after_s=1,
                )
            self._taken[client_id] += count
            of_request += count

        try:
            yield take
        finally:
            self._taken[client_id] -= of_request
            if not self._taken[client_id]:
                del self._taken[client_id]


async def read_body(
    receive: Receive,
    headers: list[tuple[bytes, bytes]],
    *,
    max_bytes: int,
    take: Callable[[int], None] | None = None,
    deadline_s: float = DEADLINE_S,
) -> bytes:
    """The whole body, at most `max_bytes` long, all of it within `deadline_s`.

    Raises BadRequest when it is larger or late (an announced size is refused before anything is read), and
    ClientGone; and what `take` raises, which is told of every part's length. Header names are in lower case.
    """
    if _announced_bytes(headers) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(deadline_s):
            return await _read(receive, max_bytes, take)
    except TimeoutError:
        raise BadRequest(f"The body did not arrive within {deadline_s:g} seconds.") from None


async def _read(receive: Receive, max_bytes: int, take: Callable[[int], None] | None) -> bytes:
    parts: list[bytes] = []
    size, more_body = 0, True
    while more_body:
        body, more_body = _part(await receive())
        if take is not None:
            take(len(body))
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
    """What `Content-Length` says, 0 if there is none; a number beyond all bounds where it is none we read."""
    for name, value in headers:
        if name == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) < _LONGEST_NUMBER else 10**_LONGEST_NUMBER
    return 0


def _too_large(max_bytes: int) -> BadRequest:
    for unit, unit_bytes in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if max_bytes % unit_bytes == 0:
            return BadRequest(f"The body is larger than {max_bytes // unit_bytes} {unit}.")
    return BadRequest(f"The body is larger than {max_bytes} bytes.")
