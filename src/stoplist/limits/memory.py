"""Limits counted in this process alone: right where it is the only one, forgotten when it stops.

A decision has no `await` in it, so no other request comes between looking and recording.
Source: docs/interface.md section D8.
"""

import asyncio

from stoplist.clock import Clock
from stoplist.limits.decision import Decision, decide
from stoplist.limits.limiter import UNKNOWN_PER_MINUTE, Limiter
from stoplist.limits.logs import Key, Logs
from stoplist.limits.sliding_log import NOTHING, SlidingLog

_SWEPT_AT_ONCE = 500


class MemoryLimiter(Limiter):
    """A limiter whose logs live in this process. Call `sweep` now and then, or no key is ever forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self._api = Logs[str]()
        self._proved = Logs[str]()
        self._failed = Logs[tuple[str, str]]()
        self._unknown = Logs[str]()

    @property
    def log_count(self) -> int:
        """How many logs are held."""
        return len(self._api) + len(self._proved) + len(self._failed) + len(self._unknown)

    async def api(self, client_id: str, *, limit: int) -> Decision:
        return self._ask(self._api, client_id, NOTHING, limit)

    async def token_proved(self, client_id: str, source: str, *, limit: int) -> Decision:
        failed = self._failed.get((client_id, source), NOTHING)
        return self._ask(self._proved, client_id, failed, limit)

    async def token_failed(self, client_id: str, source: str, *, limit: int) -> Decision:
        proved = self._proved.get(client_id, NOTHING)
        return self._ask(self._failed, (client_id, source), proved, limit)

    async def token_unknown(self, source: str) -> Decision:
        return self._ask(self._unknown, source, NOTHING, UNKNOWN_PER_MINUTE)

    async def sweep(self) -> None:
        """Drop the logs in which nothing is counted any more, in slices: requests are answered in between."""
        for logs in (self._api, self._proved, self._failed, self._unknown):
            is_more_left = True
            while is_more_left:
                is_more_left = logs.drop_expired(self._now_ns(), at_most=_SWEPT_AT_ONCE)
                await asyncio.sleep(0)

    def _ask(self, logs: Logs[Key], key: Key, other: SlidingLog, limit: int) -> Decision:
        now_ns = self._now_ns()
        own = logs.get(key, NOTHING)
        decision = decide(own, other, limit=limit, now_ns=now_ns)
        if decision.accepted:
            logs.record(key, own, now_ns)
        return decision
