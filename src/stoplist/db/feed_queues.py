"""Queues per feed: the units of one feed wait here, not in the database, so that they hold one connection at most."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from stoplist.db import Unit
from stoplist.db.pools import BoundedSemaphore
from stoplist.db.postgresql_errors import is_of_the_store, is_worth_another_try
from stoplist.errors import StoreUnavailable

GROUP_UNITS = 64
WAITING_UNITS = 1_000
# How long a unit waits before it is begun. A heavy one was expensive to make, so it is given more time.
SMALL_WAIT_S = 5.0
HEAVY_WAIT_S = 15.0


class Job:
    """A unit that waits in a line, and whoever waits for it."""

    def __init__(self, unit: Unit[Any]) -> None:
        self._unit = unit
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._result: Any = None
        self._failure: Exception | None = None

    async def run(self, transaction: Any, *, is_alone: bool) -> None:
        """Run the unit, perhaps once more; among others in a savepoint, where its own failure is kept for its asker."""
        self._result = self._failure = None
        if is_alone:
            self._result = await self._unit(transaction)
            return
        try:
            async with transaction.savepoint():
                self._result = await self._unit(transaction)
        except Exception as failure:
            if is_of_the_store(failure) or is_worth_another_try(failure):
                raise
            self._failure = failure

    def deliver(self) -> None:
        """Answer after the commit: also a refusal may rest on what another unit of the group wrote."""
        if self._failure is not None:
            self.refuse(self._failure)
        elif not self.answer.done():
            self.answer.set_result(self._result)

    def refuse(self, failure: Exception) -> None:
        """Answer that nothing was stored."""
        if not self.answer.done():
            self.answer.set_exception(failure)


class FeedQueues:
    """Every line in which somebody waits, by its number."""

    def __init__(
        self, commit_together: Callable[[list[Job]], Awaitable[None]], heavy_capacity: BoundedSemaphore
    ) -> None:
        """`commit_together` runs units in one transaction and answers them; it raises nothing."""
        self._commit_together, self._heavy = commit_together, heavy_capacity
        self._queues: dict[int, _FeedQueue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    async def join(self, number: int, unit: Unit[Any], *, is_heavy: bool) -> Any:
        """What the unit returns or raises, once it is committed. StoreUnavailable where it is not begun in time."""
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = _FeedQueue()
            queue.working = asyncio.create_task(self._work_off(number, queue))
        return await queue.join(unit, is_heavy=is_heavy)

    async def _work_off(self, number: int, queue: "_FeedQueue") -> None:
        """All that waits in the line, in turn: the small units together, then one heavy unit."""
        while queue.small or queue.heavy:
            if queue.small:
                await self._commit_together(queue.next_small())
            if queue.heavy:
                await self._acquire_heavy(queue)
                try:
                    if queue.heavy:  # it may have been given up meanwhile
                        await self._commit_together([queue.next_heavy()])
                finally:
                    self._heavy.release()
        del self._queues[number]

    async def _acquire_heavy(self, queue: "_FeedQueue") -> None:
        """There is room for a heavy unit; the small ones that come while it waits for that go ahead of it."""
        if not self._heavy.is_full:
            await self._heavy.acquire(is_bounded=False)
            return
        room = asyncio.ensure_future(self._heavy.acquire(is_bounded=False))
        while not room.done():
            if queue.small:
                await self._commit_together(queue.next_small())
            else:
                await queue.something_comes_before(room)


class _FeedQueue:
    """The units of one feed that wait for one another; it exists while some do."""

    def __init__(self) -> None:
        self.small: deque[tuple[Job, asyncio.TimerHandle]] = deque()
        self.heavy: deque[tuple[Job, asyncio.TimerHandle]] = deque()
        self.working: asyncio.Task[None] | None = None
        self._comes = asyncio.Event()

    async def join(self, unit: Unit[Any], *, is_heavy: bool) -> Any:
        queue = self.heavy if is_heavy else self.small
        if len(queue) >= WAITING_UNITS:
            raise StoreUnavailable("Too many submissions wait for this feed at the moment: try again shortly.")
        job = Job(unit)
        wait_s = HEAVY_WAIT_S if is_heavy else SMALL_WAIT_S
        queue.append((job, asyncio.get_running_loop().call_later(wait_s, self._give_up, queue, job)))
        self._comes.set()
        return await job.answer

    async def something_comes_before(self, other: "asyncio.Future[Any]") -> None:
        """A unit has joined the line, or the other has come to its end."""
        self._comes.clear()
        coming = asyncio.ensure_future(self._comes.wait())
        await asyncio.wait({coming, other}, return_when=asyncio.FIRST_COMPLETED)
        coming.cancel()

    def next_small(self) -> list[Job]:
        return [_begun(self.small) for _ in range(min(len(self.small), GROUP_UNITS))]

    def next_heavy(self) -> Job:
        return _begun(self.heavy)

    def _give_up(self, queue: "deque[tuple[Job, asyncio.TimerHandle]]", job: Job) -> None:
        """It has waited long enough, and can have stored nothing."""
        # Those who wait came in this order, so it is among the first.
        queue.remove(next(entry for entry in queue if entry[0] is job))
        job.refuse(StoreUnavailable("Others write to this feed at the moment: try again shortly."))


def _begun(queue: "deque[tuple[Job, asyncio.TimerHandle]]") -> Job:
    job, patience = queue.popleft()
    patience.cancel()
    return job
