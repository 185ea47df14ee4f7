"""Queues per feed: the units of one feed wait here, not in the database, so they hold at most one connection."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from stoplist.db import Unit
from stoplist.db.pools import BoundedSemaphore
from stoplist.db.postgresql_errors import is_retryable, is_store_failure
from stoplist.errors import StoreUnavailable

MAX_GROUP_UNITS = 64
MAX_WAITING_UNITS = 1_000
# How long a unit may wait before it starts. A heavy unit was expensive to prepare, so it may wait longer.
SMALL_WAIT_S = 5.0
HEAVY_WAIT_S = 15.0


class Job:
    """A queued unit and the future of its result."""

    def __init__(self, unit: Unit[Any]) -> None:
        self._unit = unit
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._result: Any = None
        self._failure: Exception | None = None

    async def run(self, transaction: Any, *, is_alone: bool) -> None:
        """Run the unit; may be called again after a rollback.

        In a group the unit runs in a savepoint, and its own failure is kept for its caller.
        """
        self._result = self._failure = None
        if is_alone:
            self._result = await self._unit(transaction)
            return
        try:
            async with transaction.savepoint():
                self._result = await self._unit(transaction)
        except Exception as failure:
            if is_store_failure(failure) or is_retryable(failure):
                raise
            self._failure = failure

    def deliver(self) -> None:
        """Deliver the outcome after the commit: even a failure may depend on what others in the group wrote."""
        if self._failure is not None:
            self.refuse(self._failure)
        elif not self.answer.done():
            self.answer.set_result(self._result)

    def refuse(self, failure: Exception) -> None:
        """Deliver `failure`: nothing was stored."""
        if not self.answer.done():
            self.answer.set_exception(failure)


class FeedQueues:
    """The queues that hold units, by queue key."""

    def __init__(
        self, commit_together: Callable[[int, list[Job]], Awaitable[None]], heavy_capacity: BoundedSemaphore
    ) -> None:
        """`commit_together` runs jobs in one transaction and delivers their results; it must not raise."""
        self._commit_together, self._heavy = commit_together, heavy_capacity
        self._queues: dict[int, _FeedQueue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    async def join(self, queue_key: int, unit: Unit[Any], *, is_heavy: bool) -> Any:
        """Queue the unit; return its result (or raise its exception) once committed.

        Raise StoreUnavailable if the queue is full or the unit does not start in time.
        """
        queue = self._queues.get(queue_key)
        if queue is None:
            queue = self._queues[queue_key] = _FeedQueue()
            queue.drain_task = asyncio.create_task(self._drain(queue_key, queue))
        return await queue.join(unit, is_heavy=is_heavy)

    async def _drain(self, queue_key: int, queue: "_FeedQueue") -> None:
        """Run all units of the queue: the small ones together, then one heavy unit, and so on."""
        while queue.small or queue.heavy:
            if queue.small:
                await self._commit_together(queue_key, queue.next_small())
            if queue.heavy:
                await self._acquire_heavy(queue_key, queue)
                try:
                    if queue.heavy:  # it may have timed out meanwhile
                        await self._commit_together(queue_key, [queue.next_heavy()])
                finally:
                    self._heavy.release()
        del self._queues[queue_key]

    async def _acquire_heavy(self, queue_key: int, queue: "_FeedQueue") -> None:
        """Acquire capacity for a heavy unit, and run small units that arrive while it waits."""
        if not self._heavy.is_full:
            await self._heavy.acquire(is_bounded=False)
            return
        acquired = asyncio.ensure_future(self._heavy.acquire(is_bounded=False))
        while not acquired.done():
            if queue.small:
                await self._commit_together(queue_key, queue.next_small())
            else:
                await queue.wait_for_unit_or(acquired)


class _FeedQueue:
    """The waiting units of one feed. Removed when empty."""

    def __init__(self) -> None:
        self.small: deque[tuple[Job, asyncio.TimerHandle]] = deque()
        self.heavy: deque[tuple[Job, asyncio.TimerHandle]] = deque()
        self.drain_task: asyncio.Task[None] | None = None
        self._unit_joined = asyncio.Event()

    async def join(self, unit: Unit[Any], *, is_heavy: bool) -> Any:
        queue = self.heavy if is_heavy else self.small
        if len(queue) >= MAX_WAITING_UNITS:
            raise StoreUnavailable("Too many submissions are waiting for this feed: try again shortly.")
        job = Job(unit)
        wait_s = HEAVY_WAIT_S if is_heavy else SMALL_WAIT_S
        queue.append((job, asyncio.get_running_loop().call_later(wait_s, self._give_up, queue, job)))
        self._unit_joined.set()
        return await job.answer

    async def wait_for_unit_or(self, other: "asyncio.Future[Any]") -> None:
        """Wait until a unit joins the queue or `other` is done."""
        self._unit_joined.clear()
        joined = asyncio.ensure_future(self._unit_joined.wait())
        await asyncio.wait({joined, other}, return_when=asyncio.FIRST_COMPLETED)
        joined.cancel()

    def next_small(self) -> list[Job]:
        return [_pop(self.small) for _ in range(min(len(self.small), MAX_GROUP_UNITS))]

    def next_heavy(self) -> Job:
        return _pop(self.heavy)

    def _give_up(self, queue: "deque[tuple[Job, asyncio.TimerHandle]]", job: Job) -> None:
        # The queue is ordered by arrival, so the job is among the first entries.
        queue.remove(next(entry for entry in queue if entry[0] is job))
        job.refuse(StoreUnavailable("Other submissions to this feed are being written: try again shortly."))


def _pop(queue: "deque[tuple[Job, asyncio.TimerHandle]]") -> Job:
    job, timeout = queue.popleft()
    timeout.cancel()
    return job
