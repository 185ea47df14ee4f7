"""Limits counted in this process: correct if it is the only process; the counts are lost when it stops.

A decision contains no `await`, so no other request runs between reading and recording.
Source: docs/interface.md section D8.
"""

import asyncio

from stoplist.clock import Clock
from stoplist.limits.decision import RateDecision, decide, within
from stoplist.limits.limiter import Limiter, Log, Wider
from stoplist.limits.log_table import LogTable
from stoplist.limits.sliding_log import EMPTY_LOG, SlidingLog

_LOGS_PER_SLICE = 500


class MemoryLimiter(Limiter):
    """A limiter whose logs are in this process's memory."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self._logs = LogTable[Log]()

    @property
    def log_count(self) -> int:
        """Return the number of logs held."""
        return len(self._logs)

    async def acquire(self, own: Log, other: Log | None, *, limit: int, wider: Wider | None = None) -> RateDecision:
        return self.decide(own, other, limit=limit, wider=wider, now_ns=self._now_ns())

    async def sweep(self) -> None:
        # In slices: requests are answered in between.
        while self._logs.drop_expired(self._now_ns(), at_most=_LOGS_PER_SLICE):  # noqa: ASYNC110
            await asyncio.sleep(0)

    def decide(
        self, own: Log, other: Log | None, *, limit: int, now_ns: int, wider: Wider | None = None
    ) -> RateDecision:
        """Do what `acquire` does at a given time, which must not go back from one call to the next."""
        own_log = self._logs.get(own, EMPTY_LOG)
        decision = decide(own_log, self._other_log(other), limit=limit, now_ns=now_ns)
        if wider is not None:
            wider_log = self._logs.get(wider.log, EMPTY_LOG)
            decision = within(decide(wider_log, EMPTY_LOG, limit=wider.limit, now_ns=now_ns), decision)
            if decision.accepted:
                self._logs.record(wider.log, wider_log, now_ns)
        if decision.accepted:
            self._logs.record(own, own_log, now_ns)
        return decision

    def peek(self, own: Log, other: Log | None, *, limit: int, now_ns: int, wider: Wider | None = None) -> RateDecision:
        """Return what `decide` would decide, without recording anything."""
        decision = decide(self._logs.get(own, EMPTY_LOG), self._other_log(other), limit=limit, now_ns=now_ns)
        if wider is None:
            return decision
        return within(decide(self._other_log(wider.log), EMPTY_LOG, limit=wider.limit, now_ns=now_ns), decision)

    def undo(self, own: Log, at_ns: int, *, wider: Wider | None = None) -> None:
        """Remove a request that `decide` accepted at `at_ns`."""
        for log in (own,) if wider is None else (own, wider.log):
            self._logs.get(log, EMPTY_LOG).remove(at_ns)

    def _other_log(self, other: Log | None) -> SlidingLog:
        return EMPTY_LOG if other is None else self._logs.get(other, EMPTY_LOG)
