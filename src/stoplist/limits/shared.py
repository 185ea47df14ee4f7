"""Limits shared by all processes. While the shared store is unavailable, each process counts alone.

A process also records locally everything that it accepts, and accepts nothing that its own records refuse. So when the
store is lost, the process continues from its own last minute, and a store that comes back empty lets no process exceed
the limit.
Source: docs/interface.md section D8.
"""

import asyncio
import logging

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Limiter, Log, StoreHealth, Wider
from stoplist.limits.memory import MemoryLimiter
from stoplist.limits.store import LimitStore, StoreLost

_LOG = logging.getLogger(__name__)


class SharedLimiter(Limiter):
    """A limiter that asks a store, and decides alone while the store does not answer within 250 ms."""

    is_shared = True

    def __init__(self, store: LimitStore, clock: Clock) -> None:
        self._store = store
        self._local = MemoryLimiter(clock)
        self._now_ns = clock.monotonic_ns
        self._is_lost = False
        self._decided_alone = 0

    async def open(self) -> None:
        """Connect to the store, or start without it if it does not answer; raise SettingsError if it never will."""
        try:
            await self._store.check()
        except StoreLost as lost:
            self._lose(lost)
        except SettingsError:
            await self._store.close()
            raise

    async def acquire(self, own: Log, other: Log | None, *, limit: int, wider: Wider | None = None) -> RateDecision:
        if self._is_lost:
            return self._decide_alone(own, other, limit, wider)
        now_ns = self._now_ns()
        # Recorded before the store is asked, so that an entry expires here no later than there.
        local = self._local.decide(own, other, limit=limit, wider=wider, now_ns=now_ns)
        if not local.accepted:
            return await self._peek(own, other, limit, wider)
        try:
            shared = await self._store.acquire(own, other, limit=limit, wider=wider)
        except StoreLost as lost:
            self._lose(lost)
            self._decided_alone += 1
            return local
        except asyncio.CancelledError:
            self._local.undo(own, now_ns, wider=wider)
            raise
        if not shared.accepted:
            self._local.undo(own, now_ns, wider=wider)
            return shared
        # Fewer requests are left here if the store does not know of all that was decided alone.
        return min(shared, local, key=lambda decision: decision.remaining)

    async def _peek(self, own: Log, other: Log | None, limit: int, wider: Wider | None) -> RateDecision:
        """Answer a request that does not fit locally, perhaps because of requests that the store has yet to decide.

        Those that the store refuses are undone before the store answers this request.
        """
        try:
            shared = await self._store.acquire(own, other, limit=limit, wider=wider, is_recorded=False)
        except StoreLost as lost:
            self._lose(lost)
            return self._decide_alone(own, other, limit, wider)
        local = self._local.peek(own, other, limit=limit, wider=wider, now_ns=self._now_ns())
        if local.accepted and shared.accepted:
            # The request fits locally now, so `acquire` does not come back here.
            return await self.acquire(own, other, limit=limit, wider=wider)
        return max(shared, local, key=lambda decision: decision.retry_after_s)

    async def sweep(self) -> None:
        await self._local.sweep()

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

    def _decide_alone(self, own: Log, other: Log | None, limit: int, wider: Wider | None) -> RateDecision:
        self._decided_alone += 1
        return self._local.decide(own, other, limit=limit, wider=wider, now_ns=self._now_ns())

    def _lose(self, lost: StoreLost) -> None:
        if self._is_lost:  # another request noticed first
            return
        self._is_lost = True
        _LOG.warning(
            "The limit store does not answer: this process counts alone until it does",
            extra={"fields": {"why": str(lost)}},
        )
