"""The in-process limiter's own properties; test_stories.py tests its decisions."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stoplist.limits.memory import MemoryLimiter
from tests.constants import SECOND_NS
from tests.fakes import FakeClock
from tests.limits.counting import at_once


def are_sixty_seconds_apart(times_ns: list[int], limit: int) -> bool:
    """Return whether no 60 s hold more than `limit`: each time is 60 s after the one `limit` places before."""
    return all(later - earlier >= 60 * SECOND_NS for earlier, later in zip(times_ns, times_ns[limit:], strict=False))


@given(st.integers(1, 5), st.lists(st.integers(0, 30 * SECOND_NS), max_size=60))
def test_no_60_s_hold_more_than_n_api_requests(limit: int, gaps_ns: list[int]) -> None:
    """Section D8, exact: each accepted request is at least 60 s after the one N places before."""
    clock = FakeClock()
    limiter = MemoryLimiter(clock)
    accepted_ns = []
    for gap_ns in gaps_ns:
        clock.advance(gap_ns / SECOND_NS)
        if at_once(limiter.api("a", limit=limit)).accepted:
            accepted_ns.append(clock.monotonic_ns())
    assert are_sixty_seconds_apart(accepted_ns, limit)


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 25 * SECOND_NS), st.booleans(), st.sampled_from("xy")), max_size=60),
)
def test_no_60_s_hold_more_than_n_token_requests(limit: int, asked: list[tuple[int, bool, str]]) -> None:
    """Section D8: not in the proved log, not in that of any source, and for one source not in both together."""
    clock = FakeClock()
    limiter = MemoryLimiter(clock)
    logs_ns: dict[str, list[int]] = {}
    for gap_ns, proves, source in asked:
        clock.advance(gap_ns / SECOND_NS)
        acquire = limiter.token_authenticated if proves else limiter.token_failed
        if at_once(acquire("many", source, limit=limit)).accepted:
            logs_ns.setdefault("proved" if proves else source, []).append(clock.monotonic_ns())
        if at_once(acquire("single", "x", limit=limit)).accepted:
            logs_ns.setdefault("single", []).append(clock.monotonic_ns())
    assert all(are_sixty_seconds_apart(log_ns, limit) for log_ns in logs_ns.values())


def test_a_sweep_keeps_only_logs_with_counted_entries(clock: FakeClock) -> None:
    """Memory is bounded by the traffic of the last 60 seconds; all four kinds of log are swept."""
    limiter = MemoryLimiter(clock)

    def ask_all(name: str) -> None:
        at_once(limiter.api(name, limit=5))
        at_once(limiter.token_authenticated(name, "s", limit=5))
        at_once(limiter.token_failed(name, "s", limit=5))
        at_once(limiter.token_unknown(name))

    for number in range(3_000):
        ask_all(f"early {number}")
    clock.advance(1)
    ask_all("late")
    assert limiter.log_count == 12_004
    clock.advance(59)
    asyncio.run(limiter.sweep())
    assert limiter.log_count == 4
    assert at_once(limiter.api("late", limit=5)).remaining == 3
    clock.advance(1)
    asyncio.run(limiter.sweep())
    assert limiter.log_count == 1


def test_a_sweep_yields_every_few_hundred_logs(clock: FakeClock) -> None:
    """Requests are answered in between, and a log used meanwhile is not dropped."""
    limiter = MemoryLimiter(clock)
    for number in range(5_000):
        at_once(limiter.token_unknown(str(number)))
    clock.advance(60)
    sweep = limiter.sweep()
    held = [limiter.log_count]
    sweep.send(None)
    at_once(limiter.token_unknown("4321"))
    for _ in range(1_000):
        held.append(limiter.log_count)
        try:
            sweep.send(None)
        except StopIteration:
            break
    assert limiter.log_count == 1
    assert at_once(limiter.token_unknown("4321")).remaining == 298
    assert max(before - after for before, after in pairwise(held)) <= 500


def test_refused_requests_create_no_log(clock: FakeClock) -> None:
    """A flood of refusals from ever new sources takes no memory."""
    limiter = MemoryLimiter(clock)
    assert all(at_once(limiter.token_authenticated("a", "s", limit=2)).accepted for _ in range(2))
    for number in range(100):
        assert not at_once(limiter.token_failed("a", f"s{number}", limit=2)).accepted
    assert limiter.log_count == 1
