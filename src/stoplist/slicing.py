"""Long work on the event loop, cut into slices of about a millisecond so that other requests run in between.

Why not in a thread: docs/decisions/0004-sqlite-on-the-loop.md.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

SLICE_NS = 1_000_000
_LOOK_EVERY = 16


class _FairTurns:
    """Who waits to go on with long work. One goes on at a time, so that a short request waits for one slice only."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_giving = False

    async def wait(self) -> None:
        """It is our turn when this returns."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_giving:
            self._is_giving = True
            loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                break
        self._is_giving = bool(self._waiting)
        if self._is_giving:
            loop.call_soon(self._give, loop)


_turns_on: WeakKeyDictionary[asyncio.AbstractEventLoop, _FairTurns] = WeakKeyDictionary()


async def yield_to_loop() -> None:
    """Whatever else waits for the loop has run once when this returns; of those that wait here one goes on a round."""
    loop = asyncio.get_running_loop()
    turns = _turns_on.get(loop)
    if turns is None:
        turns = _turns_on[loop] = _FairTurns()
    await turns.wait()


async def in_slices(
    items: Sequence[T], pause: Callable[[], Awaitable[None]] = yield_to_loop, *, look_every: int = _LOOK_EVERY
) -> AsyncIterator[Sequence[T]]:
    """`items` in order, `look_every` at a time, with a `pause` after each millisecond of work on them."""
    if len(items) <= look_every:
        yield items
        return
    pause_ns = time.monotonic_ns() + SLICE_NS
    for at in range(0, len(items), look_every):
        yield items[at : at + look_every]
        if time.monotonic_ns() > pause_ns:
            await pause()
            pause_ns = time.monotonic_ns() + SLICE_NS
