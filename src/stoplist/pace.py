"""Long work on the event loop, cut into slices of about a millisecond so that other requests run in between.

Why not in a thread: docs/decisions/0004-sqlite-on-the-loop.md.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

SLICE_NS = 1_000_000
_LOOK_EVERY = 16


async def let_others_run() -> None:
    """Whatever else waits for the loop has run once when this returns."""
    await asyncio.sleep(0)


async def in_slices(
    items: Sequence[T], pause: Callable[[], Awaitable[None]] = let_others_run
) -> AsyncIterator[Sequence[T]]:
    """`items` in order, a few at a time, with a `pause` after each millisecond of work on them."""
    if len(items) <= _LOOK_EVERY:
        yield items
        return
    pause_ns = time.monotonic_ns() + SLICE_NS
    for at in range(0, len(items), _LOOK_EVERY):
        yield items[at : at + _LOOK_EVERY]
        if time.monotonic_ns() > pause_ns:
            await pause()
            pause_ns = time.monotonic_ns() + SLICE_NS
