"""Communication of processes with the store, in real time: round trips, cancelled requests, several processes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from stoplist.clock import Clock
from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Log, StoreHealth, Wider
from stoplist.limits.shared import SharedLimiter
from stoplist.limits.store import LimitStore, StoreLost
from tests.builders import Run
from tests.constants import SECOND_NS
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.limits.counting import at_store, own_url, patience
from tests.services.proxy import ANSWERS, Proxy
from tests.services.valkey import Valkey

pytestmark = pytest.mark.usefixtures("long_store_timeout")


@pytest.fixture
def url(valkey: Valkey) -> str:
    """An empty database for these tests."""
    with redis.Redis.from_url(own_url(valkey)) as client:
        client.flushdb()
    return own_url(valkey)


@pytest.fixture
def between(url: str) -> Iterator[Proxy]:
    """A proxy before that database."""
    with Proxy(url) as own:
        yield own


@asynccontextmanager
async def store_at(url: str) -> AsyncIterator[LimitStore]:
    """Yield a store that is closed in the end."""
    store = LimitStore.at(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def limiter_at(url: str) -> AsyncIterator[SharedLimiter]:
    """Yield the limiter of one process that counts there."""
    async with store_at(url) as store:
        limiter = SharedLimiter(store, Clock())
        await limiter.open()
        yield limiter


async def until(is_true: Callable[[], bool], what: str) -> None:
    """Yield to the loop until `is_true`."""
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110 - what is waited for happens in another thread
            await asyncio.sleep(0.001)
    assert is_true(), what


class Requests:
    """The data sent to the store, piece by piece."""

    def __init__(self, between: Proxy) -> None:
        self.pieces: list[bytes] = []
        between.drop_answers_after(self._see)

    def _see(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        return False

    @property
    def decisions(self) -> int:
        return sum(piece.count(b"EVALSHA") for piece in self.pieces)


@in_own_loop
async def test_concurrent_requests_share_one_round_trip(url: str, between: Proxy) -> None:
    """Only the script is sent; a hundred concurrent requests go together."""
    async with limiter_at(between.url(url)) as limiter:
        seen = Requests(between)
        for number in range(1, 4):
            assert (await limiter.token_authenticated("a", "s", limit=10)).accepted
            assert len(seen.pieces) == seen.decisions == number
        seen.pieces.clear()
        decisions = await asyncio.gather(*(limiter.api("a", limit=60) for _ in range(100)))
        assert seen.decisions == 100
        assert len(seen.pieces) <= 3
        assert all(piece.startswith(b"*") for piece in seen.pieces)
        assert sum(decision.accepted for decision in decisions) == 60


@in_own_loop
async def test_the_store_runs_only_one_script_per_request(url: str) -> None:
    """Counted at the server: one EVALSHA, and only the commands of the script."""
    async with limiter_at(url) as limiter:
        with redis.Redis.from_url(url) as direct:
            direct.config_resetstat()
            await limiter.api("a", limit=60)
            stats = direct.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    assert calls.pop("config|resetstat", calls.pop("config", 0)) == 1
    assert calls == {"evalsha": 1, "time": 1, "zrange": 1, "zadd": 1, "pexpire": 1}


@in_own_loop
async def test_requests_beyond_one_round_trip_go_into_the_next(url: str) -> None:
    """However many wait, each gets its own decision."""
    async with store_at(url) as store:
        await store.check()
        asked = (store.acquire(("api", f"c{number}"), None, limit=number) for number in range(1, 1001))
        decisions = await asyncio.gather(*asked)
        assert [decision.remaining for decision in decisions] == list(range(1000))


@in_own_loop
async def test_cancelled_requests_affect_no_others(url: str, between: Proxy) -> None:
    """Half of the sent and half of the queued requests are cancelled; every other gets its own answer."""
    async with store_at(between.url(url)) as store:
        await store.check()
        seen = Requests(between)
        between.hold(ANSWERS)

        def acquire(number: int) -> "asyncio.Task[RateDecision]":
            return asyncio.create_task(store.acquire(("api", f"c{number}"), None, limit=number + 1))

        tasks = [acquire(number) for number in range(10)]
        await until(lambda: seen.decisions == 10, "ten to be under way")
        tasks += [acquire(number) for number in range(10, 20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        between.release()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
        decided = [answer for answer in answers if isinstance(answer, RateDecision)]
        assert [decision.remaining for decision in decided] == list(range(1, 20, 2))
        # Cancelled requests count only if they were already sent.
        again = await asyncio.gather(*(acquire(number) for number in range(1, 20)))
        assert [answer.remaining for answer in again[1:9:2]] == [1, 3, 5, 7]
        assert [answer.remaining for answer in again[9::2]] == [10, 12, 14, 16, 18]


@in_own_loop
async def test_a_cancelled_request_does_not_count_locally(url: str, between: Proxy) -> None:
    """It was not let through; only the store may have counted it."""
    async with limiter_at(between.url(url)) as limiter:
        between.hold(ANSWERS)
        task = asyncio.create_task(limiter.api("a", limit=5))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        between.cut()
        between.release()
        assert (await limiter.api("a", limit=5)).remaining == 4


@in_own_loop
async def test_a_late_answer_is_never_another_requests(url: str, between: Proxy) -> None:
    """Its connection is closed; the next requests get their own answers."""
    async with store_at(between.url(url)) as store:
        assert (await store.acquire(("api", "late"), None, limit=2)).accepted  # so that its next answer is unique
        seen = Requests(between)
        between.hold(ANSWERS)
        # Long enough for the request to be sent, even on a busy machine.
        with patience(2.0), pytest.raises(StoreLost, match="no answer within 250 ms"):
            await store.acquire(("api", "late"), None, limit=2)
        await until(lambda: seen.decisions == 1, "the late one to be under way")
        asked = len(seen.pieces)
        task = asyncio.create_task(store.acquire(("api", "a"), None, limit=7))
        await until(lambda: len(seen.pieces) > asked, "the next to be under way while the late answer is")
        between.release()
        assert await task == RateDecision(True, 7, 6, 60, 0)
        assert await store.acquire(("api", "b"), None, limit=9) == RateDecision(True, 9, 8, 60, 0)
        assert not (await store.acquire(("api", "late"), None, limit=2)).accepted  # it was counted


@in_own_loop
async def test_an_unknown_script_is_sent_with_the_same_request(url: str) -> None:
    """This holds for many concurrent requests too, each of which counts once."""
    async with store_at(url) as store:
        with redis.Redis.from_url(url) as direct:
            await store.acquire(("api", "a"), None, limit=60)
            direct.script_flush()
            decisions = await asyncio.gather(*(store.acquire(("api", "a"), None, limit=60) for _ in range(10)))
            assert [decision.remaining for decision in decisions] == list(range(58, 48, -1))


@in_own_loop
async def test_a_connection_closed_by_the_server_is_reopened(url: str) -> None:
    """An idle connection that ends, by a restart or the server's `timeout`, is no lost store."""
    async with store_at(url) as store:
        assert (await store.acquire(("api", "a"), None, limit=60)).remaining == 59
        async with redis.asyncio.Redis.from_url(url) as other:
            # The server answers after closing our connection, so the end of ours arrives before the answer.
            assert await other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]
            await other.ping()
        assert (await store.acquire(("api", "a"), None, limit=60)).remaining == 58


@in_own_loop
async def test_two_processes_together_let_exactly_n_through(url: str) -> None:
    """They are under load, in real time, at the token endpoint with both its logs."""
    async with limiter_at(url) as one, limiter_at(url) as other:
        asks = [
            acquire("a", "s", limit=50)
            for _ in range(50)
            for limiter in (one, other)
            for acquire in (limiter.token_authenticated, limiter.token_failed)
        ]
        decisions = await asyncio.gather(*asks)
        assert sum(decision.accepted for decision in decisions) == 50
        assert one.health() == other.health() == StoreHealth(is_lost=False, decided_alone=0)


@in_own_loop
async def test_a_refusal_waits_for_pending_decisions(url: str) -> None:
    """Two concurrent requests for the last place, filled elsewhere, both learn when that place is free."""
    clock = FakeClock()
    async with store_at(url) as store, limiter_at(url) as other:
        limiter = SharedLimiter(store, clock)
        begun_s = time.monotonic()
        assert (await other.api("a", limit=1)).accepted
        with redis.Redis.from_url(url) as direct:
            # As if the other request had been sent 50 s ago.
            ((member, score),) = direct.zrange("stoplist:api:{a}", 0, -1, withscores=True)
            direct.zrem("stoplist:api:{a}", member)
            direct.zadd("stoplist:api:{a}", {str(int(score) - 50_000_000): int(score) - 50_000_000})
        decisions = await asyncio.gather(*(limiter.api("a", limit=1) for _ in range(5)))
        waited_s = time.monotonic() - begun_s
        assert all(10 - waited_s <= decision.retry_after_s <= 10 for decision in decisions)


def test_capacity_undone_by_a_refusal_is_usable(run: Run, url: str) -> None:
    """The store refuses the first request, which took the second's place; by then the second fits everywhere."""

    class Freed(LimitStore):
        """Frees a place after the first request was refused, before the second is checked."""

        async def acquire(
            self, own: Log, other: Log | None, *, limit: int, wider: Wider | None = None, is_recorded: bool = True
        ) -> RateDecision:
            if not is_recorded:
                await tasks[0]
                direct.delete("stoplist:proved:{a}")
            return await super().acquire(own, other, limit=limit, wider=wider, is_recorded=is_recorded)

    async def main() -> None:
        store = Freed.at(url)
        limiter = SharedLimiter(store, FakeClock())
        assert (await store.acquire(("proved", "a"), None, limit=1)).accepted
        tasks.extend(asyncio.create_task(limiter.token_failed("a", "s", limit=1)) for _ in range(2))
        assert [decision.accepted for decision in await asyncio.gather(*tasks)] == [False, True]
        assert direct.zcard("stoplist:failed:{a}:s") == 1
        await limiter.close()

    tasks: list[asyncio.Task[RateDecision]] = []
    with redis.Redis.from_url(url) as direct:
        run(main())


jumps_s = st.sampled_from([0.0, 0.0, -3600.0, -30.0, -0.5, 30.0, 61.0, 3600.0])


@settings(max_examples=25)
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 30_000), jumps_s), max_size=20))
def test_clock_jumps_of_the_store_exceed_no_limit(valkey: Valkey, limit: int, steps: list[tuple[int, float]]) -> None:
    """Each process remembers what the store forgets too early; and nobody is locked out."""
    with at_store(valkey) as counting:
        accepted_ns = []
        for gap_ms, jump_s in steps:
            counting.clock.advance(gap_ms / 1000 + 1e-6)
            counting.clock.jump(jump_s)
            if counting.acquire(counting.limiter.api("a", limit=limit)).accepted:
                accepted_ns.append(counting.clock.monotonic_ns())
        assert all(b - a >= 60 * SECOND_NS for a, b in zip(accepted_ns, accepted_ns[limit:], strict=False))
        counting.clock.advance(61.001)
        assert counting.acquire(counting.limiter.api("a", limit=limit)).accepted
