"""The limiters under test, each with a clock that the test moves: in this process, and at a real store."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
import redis

from stoplist.limits import store as limit_store
from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Limiter, Log, Wider
from stoplist.limits.memory import MemoryLimiter
from stoplist.limits.shared import SharedLimiter
from stoplist.limits.store import SCRIPT, LimitStore
from tests.fakes import FakeClock
from tests.services.valkey import Valkey

# Not used by other tests of the session's server, so that these tests may empty it.
OWN_DATABASE = 9
CLOCKED_SCRIPT = SCRIPT.replace("redis.call('TIME')", "redis.call('MGET', 'clock:s', 'clock:us')")
assert CLOCKED_SCRIPT != SCRIPT


def own_url(server: Valkey) -> str:
    """Return a database of the server that holds only what these tests write."""
    return urlsplit(server.url)._replace(path=f"/{OWN_DATABASE}").geturl()


class StoreClock(FakeClock):
    """A fake clock that is also the clock of the store, in whole microseconds."""

    def __init__(self, client: "redis.Redis") -> None:
        super().__init__()
        self._client = client
        self.empty_store()

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._show()

    def jump(self, seconds: float) -> None:
        super().jump(seconds)
        self._show()

    def empty_store(self) -> None:
        """Delete all logs, as a restart does."""
        self._client.flushdb()
        self._show()

    def _show(self) -> None:
        seconds, rest_ns = divmod(self._wall_ns, 1_000_000_000)
        self._client.mset({"clock:s": seconds, "clock:us": rest_ns // 1000})


class ScriptLimiter(Limiter):
    """A limiter that only runs the script, without a process's own records."""

    def __init__(self, store: LimitStore) -> None:
        self._store = store

    async def acquire(self, own: Log, other: Log | None, *, limit: int, wider: Wider | None = None) -> RateDecision:
        return await self._store.acquire(own, other, limit=limit, wider=wider)

    async def sweep(self) -> None:
        """Do nothing: keys of the store expire."""

    async def close(self) -> None:
        await self._store.close()


def at_once(pending_decision: Coroutine[Any, Any, RateDecision]) -> RateDecision:
    """Return the decision, which must not yield to any other request."""
    with pytest.raises(StopIteration) as stop:
        pending_decision.send(None)
    decision = stop.value.value
    assert isinstance(decision, RateDecision)
    return decision


class Counting(Protocol):
    """A limiter, its clock, the smallest difference between two of its times, and how to call it."""

    @property
    def clock(self) -> FakeClock: ...

    @property
    def limiter(self) -> Limiter: ...

    @property
    def tick_ns(self) -> int: ...

    def acquire(self, pending_decision: Coroutine[Any, Any, RateDecision]) -> RateDecision: ...


class InProcess:
    """Counts in memory, in nanoseconds; a decision never yields."""

    tick_ns = 1

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.limiter = MemoryLimiter(self.clock)

    def acquire(self, pending_decision: Coroutine[Any, Any, RateDecision]) -> RateDecision:
        return at_once(pending_decision)


class AtStore:
    """Counts at a store, in microseconds: as a server does, or with the script alone."""

    tick_ns = 1000

    def __init__(self, url: str, runner: asyncio.Runner, *, is_alone: bool = False) -> None:
        self._runner = runner
        self._client = redis.Redis.from_url(url)
        self.clock = StoreClock(self._client)
        store = LimitStore(redis.asyncio.Redis.from_url(url, socket_timeout=None), script=CLOCKED_SCRIPT)
        self.limiter: Limiter = ScriptLimiter(store) if is_alone else SharedLimiter(store, self.clock)

    def acquire(self, pending_decision: Coroutine[Any, Any, RateDecision]) -> RateDecision:
        return self._runner.run(pending_decision)

    def close(self) -> None:
        self._runner.run(self.limiter.close())
        self._client.close()


@contextmanager
def patience(answer_within_s: float = 30.0) -> Iterator[None]:
    """Let the store take its time: a busy machine is no fault of the store."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(limit_store, "ANSWER_TIMEOUT_S", answer_within_s)
        yield


@contextmanager
def at_store(server: Valkey, *, is_alone: bool = False) -> Iterator[AtStore]:
    """Yield a limiter at an empty database of this server."""
    with asyncio.Runner() as runner, patience():
        counting = AtStore(own_url(server), runner, is_alone=is_alone)
        try:
            yield counting
        finally:
            counting.close()
