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
from stoplist.limits.limiter import Limiter, Log
from stoplist.limits.memory import MemoryLimiter
from stoplist.limits.shared import SharedLimiter
from stoplist.limits.store import SCRIPT, LimitStore
from tests.fakes import FakeClock
from tests.limits.at_once import at_once
from tests.services.valkey import Valkey

# Where the other tests of the session's server do not look, so that these may empty it.
OWN_DATABASE = 9
CLOCKED_SCRIPT = SCRIPT.replace("redis.call('TIME')", "redis.call('MGET', 'clock:s', 'clock:us')")
assert CLOCKED_SCRIPT != SCRIPT


def own_url(server: Valkey) -> str:
    """A database of the server that holds nothing but what these tests write."""
    return urlsplit(server.url)._replace(path=f"/{OWN_DATABASE}").geturl()


class StoreClock(FakeClock):
    """Its wall time is also the clock of the store, in whole microseconds."""

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
        """All logs are gone, as after a restart."""
        self._client.flushdb()
        self._show()

    def _show(self) -> None:
        seconds, rest_ns = divmod(self._wall_ns, 1_000_000_000)
        self._client.mset({"clock:s": seconds, "clock:us": rest_ns // 1000})


class StoreAlone(Limiter):
    """What the script decides, without what a process knows itself."""

    def __init__(self, store: LimitStore) -> None:
        self._store = store

    async def acquire(self, own: Log, other: Log | None, *, limit: int) -> RateDecision:
        return await self._store.acquire(own, other, limit=limit)

    async def sweep(self) -> None:
        """The store forgets by itself."""

    async def close(self) -> None:
        await self._store.close()


class Counting(Protocol):
    """A limiter, its clock, the least that two of its times differ by, and how to ask it."""

    @property
    def clock(self) -> FakeClock: ...

    @property
    def limiter(self) -> Limiter: ...

    @property
    def tick_ns(self) -> int: ...

    def acquire(self, asked: Coroutine[Any, Any, RateDecision]) -> RateDecision: ...


class InProcess:
    """Counting in memory, by nanoseconds; a decision gives way to nobody."""

    tick_ns = 1

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.limiter = MemoryLimiter(self.clock)

    def acquire(self, asked: Coroutine[Any, Any, RateDecision]) -> RateDecision:
        return at_once(asked)


class AtStore:
    """Counting at a store, by microseconds: as a server does, or by the script alone."""

    tick_ns = 1000

    def __init__(self, url: str, runner: asyncio.Runner, *, is_alone: bool = False) -> None:
        self._runner = runner
        self._client = redis.Redis.from_url(url)
        self.clock = StoreClock(self._client)
        store = LimitStore(redis.asyncio.Redis.from_url(url, socket_timeout=None), script=CLOCKED_SCRIPT)
        self.limiter: Limiter = StoreAlone(store) if is_alone else SharedLimiter(store, self.clock)

    def acquire(self, asked: Coroutine[Any, Any, RateDecision]) -> RateDecision:
        return self._runner.run(asked)

    def close(self) -> None:
        self._runner.run(self.limiter.close())
        self._client.close()


@contextmanager
def patience(answer_within_s: float = 30.0) -> Iterator[None]:
    """The store may take its time: a machine that is busy is no trouble of the store."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(limit_store, "ANSWER_TIMEOUT_S", answer_within_s)
        yield


@contextmanager
def at_store(server: Valkey, *, is_alone: bool = False) -> Iterator[AtStore]:
    """A limiter at an empty database of this server."""
    with asyncio.Runner() as runner, patience():
        counting = AtStore(own_url(server), runner, is_alone=is_alone)
        try:
            yield counting
        finally:
            counting.close()
