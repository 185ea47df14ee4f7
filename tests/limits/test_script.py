"""The script at the store, besides its decisions: ties, clock changes, keys."""

import time
from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Log
from stoplist.limits.store import LimitStore, store_key
from tests.builders import Run
from tests.constants import HOUR_S, SECOND_NS
from tests.limits.counting import AtStore, ScriptLimiter, at_store, own_url, patience
from tests.limits.naive_model import LimitedRequest, request
from tests.services.valkey import Valkey

pytestmark = pytest.mark.interpreter

MINUTE_US = 60_000_000
ODD = ["", "}", "{", "{}", "}{", ":", "::", "2001:db8::/64", "x}:failed:{y", "a}:proved", "* ?\r\n", "%7D", "ü", "\x00"]


@pytest.fixture
def script(valkey: Valkey) -> Iterator[AtStore]:
    """The script alone, at an empty store."""
    with at_store(valkey, is_alone=True) as counting:
        yield counting


@pytest.fixture
def client(valkey: Valkey) -> Iterator["redis.Redis"]:
    """A client that reads that store."""
    with redis.Redis.from_url(own_url(valkey), decode_responses=True) as own:
        yield own


def api(script: AtStore, limit: int) -> RateDecision:
    return script.acquire(script.limiter.api("a", limit=limit))


def all_kinds(source: str) -> list[LimitedRequest]:
    return [LimitedRequest(kind, "svc_ci_a", source) for kind in ("api", "proved", "failed", "unknown")]


def test_requests_within_a_microsecond_count_separately(script: AtStore, client: "redis.Redis") -> None:
    """A minute later they expire one by one: never more than N in any 60 s."""
    assert [api(script, 60).remaining for _ in range(60)] == list(range(59, -1, -1))
    assert not any(api(script, 60).accepted for _ in range(60))
    assert client.zcard(store_key(("api", "a"))) == 60
    script.clock.advance(60 - 1e-6)
    assert api(script, 60) == RateDecision(False, 60, 0, 1, 1)
    script.clock.advance(1e-6)
    assert api(script, 60).accepted
    assert not api(script, 60).accepted
    script.clock.advance(60e-6)
    assert sum(api(script, 60).accepted for _ in range(100)) == 59


def test_a_lowered_ceiling_after_a_tie_names_the_second(script: AtStore) -> None:
    """Two requests of one microsecond expire within the same second."""
    assert api(script, 2).accepted
    assert api(script, 2).accepted
    script.clock.advance(30.5)
    assert api(script, 1) == RateDecision(False, 1, 0, 30, 30)


ages_us = st.sets(st.integers(0, MINUTE_US - 1), max_size=9)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ages_us, ages_us)
def test_a_lowered_ceiling_waits_for_the_right_entry(
    script: AtStore, client: "redis.Redis", proved: set[int], failed: set[int]
) -> None:
    """However the entries of the two logs are interleaved."""
    script.clock.empty_store()
    now_us = script.clock.now_ms() * 1000
    for log, ages in ((("proved", "a"), proved), (("failed", "a", "s"), failed)):
        if ages:
            client.zadd(store_key(log), {str(now_us - age): now_us - age for age in ages})
    oldest_first = sorted([*proved, *failed], reverse=True)
    for limit in range(1, len(oldest_first) + 1):
        waits_s = -(-(MINUTE_US - oldest_first[-limit]) // 1_000_000)
        for acquire in (script.limiter.token_authenticated, script.limiter.token_failed):
            assert script.acquire(acquire("a", "s", limit=limit)).retry_after_s == waits_s


def test_a_clock_set_back_locks_out_for_a_minute_at_most(script: AtStore) -> None:
    """Earlier requests count for a minute from then on, in both logs, and no more are accepted."""
    assert all(script.acquire(script.limiter.token_failed("a", "x", limit=4)).accepted for _ in range(2))
    script.clock.advance(10)
    assert all(script.acquire(script.limiter.token_authenticated("a", "x", limit=4)).accepted for _ in range(2))
    script.clock.jump(-HOUR_S)
    refused = script.acquire(script.limiter.token_authenticated("a", "x", limit=4))
    assert refused == RateDecision(False, 4, 0, 60, 60)
    script.clock.advance(59)
    assert script.acquire(script.limiter.token_failed("a", "x", limit=4)) == RateDecision(False, 4, 0, 1, 1)
    script.clock.advance(1.001)
    assert script.acquire(script.limiter.token_authenticated("a", "x", limit=4)) == RateDecision(True, 4, 3, 60, 0)


def test_a_clock_set_forward_expires_the_logs(script: AtStore) -> None:
    """Nothing remains from a past time, nor from a future one once the clock is right again."""
    assert all(api(script, 3).accepted for _ in range(3))
    script.clock.jump(HOUR_S)
    assert api(script, 3) == RateDecision(True, 3, 2, 60, 0)
    script.clock.jump(-HOUR_S)
    assert api(script, 3) == RateDecision(True, 3, 1, 60, 0)
    script.clock.advance(60.001)
    assert api(script, 3).remaining == 2


# A clock set back by up to a second counts as not set back; by more, every entry is counted from now on.
setbacks_s = st.one_of(st.just(0.0), st.sampled_from([0.5, 1.0, 1.001, 30.0, 61.0, 3600.0]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 30_000), setbacks_s), max_size=25))
def test_setting_the_clock_back_exceeds_no_limit(script: AtStore, limit: int, steps: list[tuple[int, float]]) -> None:
    """Real time counts; a refused client waits at most a minute and the tolerated second."""
    script.clock.empty_store()
    accepted_ns = []
    for gap_ms, setback_s in steps:
        script.clock.advance(gap_ms / 1000 + 1e-6)
        script.clock.jump(-setback_s)
        decision = api(script, limit)
        assert decision.retry_after_s <= 60
        assert decision.reset_s <= 60
        if decision.accepted:
            accepted_ns.append(script.clock.monotonic_ns())
    assert all(b - a >= 60 * SECOND_NS for a, b in zip(accepted_ns, accepted_ns[limit:], strict=False))
    script.clock.advance(61.001)
    assert api(script, limit).accepted


def test_keys_expire_a_second_after_their_newest_entry(script: AtStore, client: "redis.Redis") -> None:
    """A flood of unknown sources leaves nothing for longer than 61 s."""
    flood = [LimitedRequest("unknown", "", f"2001:db8:{number}::/64") for number in range(300)]
    begun_s = time.monotonic()
    for limited_request in (*all_kinds("192.0.2.1"), *flood):
        assert script.acquire(request(script.limiter, limited_request, 300)).accepted
    keys = client.keys("stoplist:*")
    assert len(keys) == 4 + 2 * 300  # each with its /48
    left_ms = [client.pttl(key) for key in keys]
    passed_ms = (time.monotonic() - begun_s) * 1000
    assert all(60_999 - passed_ms <= left <= 61_000 for left in left_ms)


def test_a_refused_request_writes_nothing(script: AtStore, client: "redis.Redis") -> None:
    """A flood of refusals from ever new sources creates no key and extends none."""
    assert script.acquire(script.limiter.token_authenticated("a", "s", limit=1)).accepted
    (key,) = client.keys("stoplist:*")
    client.pexpire(key, 30_000)
    before = client.info("commandstats")
    for number in range(50):
        assert not script.acquire(script.limiter.token_failed("a", f"s{number}", limit=1)).accepted
        assert not script.acquire(script.limiter.token_authenticated("a", f"s{number}", limit=1)).accepted
    after = client.info("commandstats")
    for command in ("zadd", "pexpire", "zremrangebyscore", "del"):
        calls = [stats.get(f"cmdstat_{command}", {}).get("calls", 0) for stats in (before, after)]
        assert calls[0] == calls[1], command
    assert client.pttl(key) <= 30_000
    assert client.zcard(key) == 1


def hash_tag(key: str) -> str:
    """Return what a cluster places a key by (Redis Cluster specification, hash tags)."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else key


logs: st.SearchStrategy[Log] = st.one_of(
    st.tuples(st.sampled_from(["api", "proved"]), st.sampled_from(["a", "b"])),
    st.tuples(st.just("failed"), st.sampled_from(["a", "b"]), st.one_of(st.sampled_from(ODD), st.text(":{}ab"))),
    st.tuples(st.just("unknown"), st.one_of(st.sampled_from(ODD), st.text(":{}ab"))),
)


@given(st.sets(logs))
def test_different_logs_have_different_keys(some: set[Log]) -> None:
    """A source is external text; none can count for another source, or for a client."""
    assert len({store_key(log) for log in some}) == len(some)


@given(st.sampled_from(["a", "svc_ci_0"]), st.one_of(st.sampled_from(ODD), st.text()))
def test_both_logs_of_a_client_have_its_name_as_their_hash_tag(client_id: str, source: str) -> None:
    """So a cluster keeps both on one machine, whatever the source."""
    assert hash_tag(store_key(("proved", client_id))) == hash_tag(store_key(("failed", client_id, source))) == client_id
    assert store_key(("failed", client_id, source)).startswith("stoplist:")


def test_a_cluster_accepts_every_kind(run: Run) -> None:
    """A cluster refuses a script whose keys lie in different slots."""

    async def ask_all(url: str) -> list[RateDecision]:
        limiter = ScriptLimiter(LimitStore.at(url))
        try:
            return [
                await request(limiter, limited_request, 10**9)
                for source in ODD
                for limited_request in all_kinds(source)
            ]
        finally:
            await limiter.close()

    with Valkey(cluster=True) as cluster, patience():
        decisions = run(ask_all(cluster.url))
    assert all(decision.accepted for decision in decisions)
    assert len(decisions) == 4 * len(ODD)
