"""Limits shared by all processes, and what holds while the shared store is away: each process counts alone.

A process records here whatever it accepts, and accepts nothing that its own records refuse. So it goes on from what it
saw itself in the last minute when the store is lost, and a store that comes back empty lets no process exceed N.
Source: docs/interface.md section D8.
"""

import asyncio
import logging

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Limiter, Log, StoreHealth
from stoplist.limits.memory import MemoryLimiter
from stoplist.limits.store import LimitStore, StoreLost

_LOG = logging.getLogger(__name__)


class SharedLimiter(Limiter):
    """A limiter that asks a store, and decides by itself while that does not answer within 250 ms."""

    is_shared = True

    def __init__(self, store: LimitStore, clock: Clock) -> None:
        self._store = store
        self._seen = MemoryLimiter(clock)
        self._now_ns = clock.monotonic_ns
        self._is_lost = False
        self._decided_alone = 0

    async def open(self) -> None:
        """Start with the store, or without it if it does not answer; SettingsError where it never will."""
        try:
            await self._store.check()
        except StoreLost as lost:
            self._lose(lost)
        except SettingsError:
            await self._store.close()
            raise

    async def acquire(self, own: Log, other: Log | None, *, limit: int) -> RateDecision:
        if self._is_lost:
            return self._decide_alone(own, other, limit)
        now_ns = self._now_ns()
        # Before the store is asked, so that an entry leaves here no later than there.
        seen = self._seen.decide(own, other, limit=limit, now_ns=now_ns)
        if not seen.accepted:
            return await self._peek(own, other, limit)
        try:
            shared = await self._store.acquire(own, other, limit=limit)
        except StoreLost as lost:
            self._lose(lost)
            self._decided_alone += 1
            return seen
        except asyncio.CancelledError:
            self._seen.undo(own, now_ns)
            raise
        if not shared.accepted:
            self._seen.undo(own, now_ns)
            return shared
        # Fewer are left here where the store does not know of all that was decided alone.
        return min(shared, seen, key=lambda it: it.remaining)

    async def _peek(self, own: Log, other: Log | None, limit: int) -> RateDecision:
        """The answer to a request that has no room here, perhaps for others that the store has yet to decide.

        Of those, whatever the store refuses is taken back before it answers this one.
        """
        try:
            shared = await self._store.acquire(own, other, limit=limit, is_recorded=False)
        except StoreLost as lost:
            self._lose(lost)
            return self._decide_alone(own, other, limit)
        now = self._seen.peek(own, other, limit=limit, now_ns=self._now_ns())
        if now.accepted and shared.accepted:
            return await self.acquire(own, other, limit=limit)  # There is room here now: not a second time to `_peek`.
        return max(shared, now, key=lambda it: it.retry_after_s)

    async def sweep(self) -> None:
        await self._seen.sweep()

    async def reconnect(self) -> None:
        if not self._is_lost:
            return
        try:
            await self._store.check()
        except (StoreLost, SettingsError):
            return
        self._is_lost = False
        _LOG.info("The limit store answers again: requests are counted by all processes together")

    async def close(self) -> None:
        await self._store.close()

    def health(self) -> StoreHealth:
        return StoreHealth(is_lost=self._is_lost, decided_alone=self._decided_alone)

    def _decide_alone(self, own: Log, other: Log | None, limit: int) -> RateDecision:
        self._decided_alone += 1
        return self._seen.decide(own, other, limit=limit, now_ns=self._now_ns())

    def _lose(self, lost: StoreLost) -> None:
        if self._is_lost:  # another request was first
            return
        self._is_lost = True
        _LOG.warning(
            "The limit store does not answer: this process counts alone until it does",
            extra={"fields": {"why": str(lost)}},
        )
