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
_CHECK_EVERY = 16


class _FairTurns:
    """The tasks that wait to continue long work.

    One task resumes per iteration of the loop, so a short request waits for one slice only.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def wait(self) -> None:
        """Wait until it is this task's turn."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._resume_next, loop)
        await future

    def _resume_next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.cancelled():
                future.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._resume_next, loop)


_turns_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _FairTurns] = WeakKeyDictionary()


async def yield_to_loop() -> None:
    """Yield to the event loop once. Of the tasks waiting here, one resumes per iteration."""
    loop = asyncio.get_running_loop()
    turns = _turns_by_loop.get(loop)
    if turns is None:
        turns = _turns_by_loop[loop] = _FairTurns()
    await turns.wait()


class TimeLimit:
    """Limits how long one request goes on with work that another request can continue."""

    def __init__(self, limit_ns: int) -> None:
        self._end_ns = time.monotonic_ns() + limit_ns

    @property
    def is_over(self) -> bool:
        return time.monotonic_ns() > self._end_ns


class Work:
    """Long work for one client: the processor time of its timed slices so far, and the number of items in them."""

    def __init__(self) -> None:
        self.spent_ns = self.items = 0

    async def pause(self) -> None:
        """Yield to the event loop between two slices. May raise to end the work."""
        await yield_to_loop()


async def in_slices(
    items: Sequence[T], pause: Callable[[], Awaitable[None]] = yield_to_loop, *, check_every: int = _CHECK_EVERY
) -> AsyncIterator[Sequence[T]]:
    """Yield `items` in order, `check_every` at a time, with a `pause` after each millisecond of work on them."""
    if len(items) <= check_every:
        yield items
        return
    pause_ns = time.monotonic_ns() + SLICE_NS
    for at in range(0, len(items), check_every):
        yield items[at : at + check_every]
        if time.monotonic_ns() > pause_ns:
            await pause()
            pause_ns = time.monotonic_ns() + SLICE_NS


async def in_timed_slices(
    items: Sequence[T], work: Work, *, check_every: int = _CHECK_EVERY
) -> AsyncIterator[Sequence[T]]:
    """Yield `items` as `in_slices` does, and add to `work` the processor time that the caller takes for them.

    The caller awaits nothing for an item.
    """
    began_ns = time.thread_time_ns()

    async def pause() -> None:
        nonlocal began_ns
        work.spent_ns += time.thread_time_ns() - began_ns
        await work.pause()
        began_ns = time.thread_time_ns()

    try:
        async for part in in_slices(items, pause, check_every=check_every):
            yield part
            work.items += len(part)
    finally:
        work.spent_ns += time.thread_time_ns() - began_ns
