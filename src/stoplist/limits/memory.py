"""Limits counted in this process: correct if it is the only process; the counts are lost when it stops.

A decision contains no `await`, so no other request runs between reading and recording.
Source: docs/interface.md section D8.
"""

import asyncio

from stoplist.clock import Clock
from stoplist.limits.decision import RateDecision, decide
from stoplist.limits.limiter import Limiter, Log
from stoplist.limits.log_table import LogTable
from stoplist.limits.sliding_log import EMPTY_LOG

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

    async def acquire(self, own: Log, other: Log | None, *, limit: int) -> RateDecision:
        return self.decide(own, other, limit=limit, now_ns=self._now_ns())

    async def sweep(self) -> None:
        # In slices: requests are answered in between.
        while self._logs.drop_expired(self._now_ns(), at_most=_LOGS_PER_SLICE):  # noqa: ASYNC110
            await asyncio.sleep(0)

    def decide(self, own: Log, other: Log | None, *, limit: int, now_ns: int) -> RateDecision:
        """Do what `acquire` does at a given time, which must not go back from one call to the next."""
        decision = self.peek(own, other, limit=limit, now_ns=now_ns)
        if decision.accepted:
            self._logs.record(own, self._logs.get(own, EMPTY_LOG), now_ns)
        return decision

    def peek(self, own: Log, other: Log | None, *, limit: int, now_ns: int) -> RateDecision:
        """Return what `decide` would decide, without recording anything."""
        other_log = EMPTY_LOG if other is None else self._logs.get(other, EMPTY_LOG)
        return decide(self._logs.get(own, EMPTY_LOG), other_log, limit=limit, now_ns=now_ns)

    def undo(self, own: Log, at_ns: int) -> None:
        """Remove a request that `decide` accepted at `at_ns`."""
        self._logs.get(own, EMPTY_LOG).remove(at_ns)
