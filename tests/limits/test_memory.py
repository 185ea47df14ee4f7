"""The limiter of one process, told as stories; the proof against a naive model is in its own file."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.limits.decision import Decision
from stoplist.limits.memory import MemoryLimiter
from tests.fakes import FakeClock
from tests.limits.at_once import at_once

SECOND_NS = 1_000_000_000


def accepted_of(number: int, ask: Callable[[], Coroutine[Any, Any, Decision]]) -> int:
    return sum(at_once(ask()).accepted for _ in range(number))


def are_sixty_seconds_apart(times_ns: list[int], limit: int) -> bool:
    """Whether no 60 s hold more than `limit`: each time is that far from the one `limit` places before."""
    return all(later - earlier >= 60 * SECOND_NS for earlier, later in zip(times_ns, times_ns[limit:], strict=False))


def test_sixty_api_requests_in_a_minute_are_accepted_and_the_next_refused(clock: FakeClock) -> None:
    """Interface section 8: 60 requests per minute per `client_id`, and no client feels another."""
    limiter = MemoryLimiter(clock)
    assert [at_once(limiter.api("a", limit=60)).remaining for _ in range(60)] == list(range(59, -1, -1))
    assert at_once(limiter.api("a", limit=60)) == Decision(False, 60, 0, 60, 60)
    assert at_once(limiter.api("b", limit=60)) == Decision(True, 60, 59, 60, 0)


def test_the_two_budgets_are_independent(clock: FakeClock) -> None:
    """Section 8 rule 1: a client without API requests left may still ask for tokens."""
    limiter = MemoryLimiter(clock)
    assert accepted_of(5, lambda: limiter.api("a", limit=2)) == 2
    assert accepted_of(5, lambda: limiter.token_proved("a", "s", limit=2)) == 2
    assert accepted_of(5, lambda: limiter.token_unknown("s")) == 5


def test_refused_requests_do_not_count(clock: FakeClock) -> None:
    """A client that hammers through the minute is accepted the moment its oldest request leaves."""
    limiter = MemoryLimiter(clock)
    assert at_once(limiter.api("a", limit=1)).accepted
    for second in range(1, 60):
        clock.advance(1)
        assert at_once(limiter.api("a", limit=1)).retry_after_s == 60 - second
    clock.advance(1)
    assert at_once(limiter.api("a", limit=1)).accepted


@pytest.mark.parametrize("proving", [range(0), range(30), range(0, 30, 2), range(7), range(5, 30)])
def test_one_source_sees_exactly_ten_a_minute_whatever_it_proves(clock: FakeClock, proving: range) -> None:
    """Section D8: the two logs together hold N for one source, in any mixture and order."""
    limiter = MemoryLimiter(clock)
    asks = [limiter.token_proved if number in proving else limiter.token_failed for number in range(30)]
    assert [at_once(ask("a", "s", limit=10)).accepted for ask in asks] == [True] * 10 + [False] * 20


def test_a_stranger_who_knows_the_client_id_cannot_lock_its_owner_out(clock: FakeClock) -> None:
    """Section D8: failures count for the source that they came from, not for the client everywhere."""
    limiter = MemoryLimiter(clock)
    failures = [at_once(limiter.token_failed("a", f"s{number % 3}", limit=10)) for number in range(300)]
    assert sum(failure.accepted for failure in failures) == 3 * 10
    assert accepted_of(100, lambda: limiter.token_proved("a", "home", limit=10)) == 10


def test_proved_requests_count_from_every_source_together(clock: FakeClock) -> None:
    """Interface section 8: 10 per minute per `client_id`, from however many machines its owner asks."""
    limiter = MemoryLimiter(clock)
    assert sum(at_once(limiter.token_proved("a", f"s{n}", limit=10)).accepted for n in range(30)) == 10
    assert not at_once(limiter.token_failed("a", "elsewhere", limit=10)).accepted


def test_after_failures_from_two_sources_retry_after_counts_all_that_must_leave(clock: FakeClock) -> None:
    """The proved log filled from elsewhere while this source's failed log held some: both must thin out."""
    limiter = MemoryLimiter(clock)
    assert accepted_of(2, lambda: limiter.token_failed("a", "x", limit=3)) == 2
    clock.advance(10)
    assert accepted_of(3, lambda: limiter.token_proved("a", "y", limit=3)) == 3
    clock.advance(5)
    assert at_once(limiter.token_proved("a", "x", limit=3)) == Decision(False, 3, 0, 45, 55)
    assert at_once(limiter.token_proved("a", "y", limit=3)) == Decision(False, 3, 0, 55, 55)


def test_three_hundred_attempts_without_a_known_client_are_accepted_from_each_source(
    clock: FakeClock,
) -> None:
    """Section D8: held to 300 per minute per source address."""
    limiter = MemoryLimiter(clock)
    assert accepted_of(301, lambda: limiter.token_unknown("s")) == 300
    assert at_once(limiter.token_unknown("s")) == Decision(False, 300, 0, 60, 60)
    assert at_once(limiter.token_unknown("t")).remaining == 299
    clock.advance(60 - 1e-9)
    assert at_once(limiter.token_unknown("s")) == Decision(False, 300, 0, 1, 1)
    clock.advance(1e-9)
    assert accepted_of(301, lambda: limiter.token_unknown("s")) == 300


def test_a_changed_ceiling_holds_for_the_next_request(clock: FakeClock) -> None:
    """Section 8 rule 4: an administrator raises and lowers it; what was accepted before still counts."""
    limiter = MemoryLimiter(clock)
    assert accepted_of(4, lambda: limiter.api("a", limit=3)) == 3
    assert at_once(limiter.api("a", limit=5)) == Decision(True, 5, 1, 60, 0)
    assert at_once(limiter.api("a", limit=2)) == Decision(False, 2, 0, 60, 60)


@given(st.integers(1, 5), st.lists(st.integers(0, 30 * SECOND_NS), max_size=60))
def test_no_sixty_seconds_hold_more_than_n_accepted_api_requests(limit: int, gaps_ns: list[int]) -> None:
    """Section D8: exact. Of the accepted ones, each is at least 60 s after the one N places before."""
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
def test_no_sixty_seconds_hold_more_than_n_accepted_token_requests(
    limit: int, asked: list[tuple[int, bool, str]]
) -> None:
    """Section D8: not in the proved log, not in that of any source, and from one source alone not in both."""
    clock = FakeClock()
    limiter = MemoryLimiter(clock)
    logs_ns: dict[str, list[int]] = {}
    for gap_ns, proves, source in asked:
        clock.advance(gap_ns / SECOND_NS)
        ask = limiter.token_proved if proves else limiter.token_failed
        if at_once(ask("many", source, limit=limit)).accepted:
            logs_ns.setdefault("proved" if proves else source, []).append(clock.monotonic_ns())
        if at_once(ask("single", "x", limit=limit)).accepted:
            logs_ns.setdefault("single", []).append(clock.monotonic_ns())
    assert all(are_sixty_seconds_apart(log_ns, limit) for log_ns in logs_ns.values())


def test_a_sweep_leaves_only_the_logs_in_which_something_counts(clock: FakeClock) -> None:
    """Memory is bounded by the traffic of the last 60 seconds; all four kinds of log are swept."""
    limiter = MemoryLimiter(clock)

    def ask_all(name: str) -> None:
        at_once(limiter.api(name, limit=5))
        at_once(limiter.token_proved(name, "s", limit=5))
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


def test_a_sweep_gives_way_after_every_few_hundred_logs(clock: FakeClock) -> None:
    """Requests are answered in between, and a log that one of them used in the meantime is not dropped."""
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


def test_refused_requests_make_no_log(clock: FakeClock) -> None:
    """A flood of refusals from ever new sources leaves nothing in memory."""
    limiter = MemoryLimiter(clock)
    assert accepted_of(2, lambda: limiter.token_proved("a", "s", limit=2)) == 2
    for number in range(100):
        assert not at_once(limiter.token_failed("a", f"s{number}", limit=2)).accepted
    assert limiter.log_count == 1
