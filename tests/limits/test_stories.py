"""Examples of the limits, for every limiter; the comparison with a naive model is in a file of its own."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from stoplist.limits import limiter as limiter_module
from stoplist.limits.decision import RateDecision
from tests.limits.counting import Counting, InProcess, at_store


@pytest.fixture(params=["in this process", "at a store", "by the script alone"])
def counting(request: pytest.FixtureRequest) -> Iterator[Counting]:
    """A limiter that has counted nothing yet."""
    if request.param == "in this process":
        yield InProcess()
        return
    is_alone = request.param == "by the script alone"
    with at_store(request.getfixturevalue("valkey"), is_alone=is_alone) as counting:
        yield counting


def accepted_of(counting: Counting, number: int, acquire: Callable[[], Coroutine[Any, Any, RateDecision]]) -> int:
    return sum(counting.acquire(acquire()).accepted for _ in range(number))


def test_60_api_requests_a_minute_are_accepted(counting: Counting) -> None:
    """Interface section 8: 60 requests per minute per `client_id`, and no client affects another."""
    limiter = counting.limiter
    assert [counting.acquire(limiter.api("a", limit=60)).remaining for _ in range(60)] == list(range(59, -1, -1))
    assert counting.acquire(limiter.api("a", limit=60)) == RateDecision(False, 60, 0, 60, 60)
    assert counting.acquire(limiter.api("b", limit=60)) == RateDecision(True, 60, 59, 60, 0)


def test_api_and_token_limits_are_independent(counting: Counting) -> None:
    """Section 8 rule 1: a client without API requests left may still request tokens."""
    limiter = counting.limiter
    assert accepted_of(counting, 5, lambda: limiter.api("a", limit=2)) == 2
    assert accepted_of(counting, 5, lambda: limiter.token_authenticated("a", "s", limit=2)) == 2
    assert accepted_of(counting, 5, lambda: limiter.token_unknown("s")) == 5


def test_refused_requests_do_not_count(counting: Counting) -> None:
    """A client that keeps sending is accepted the moment its oldest request expires."""
    limiter = counting.limiter
    assert counting.acquire(limiter.api("a", limit=1)).accepted
    for second in range(1, 60):
        counting.clock.advance(1)
        assert counting.acquire(limiter.api("a", limit=1)).retry_after_s == 60 - second
    counting.clock.advance(1)
    assert counting.acquire(limiter.api("a", limit=1)).accepted


@pytest.mark.parametrize("proving", [range(0), range(30), range(0, 30, 2), range(7), range(5, 30)])
def test_one_source_gets_ten_token_requests_a_minute(counting: Counting, proving: range) -> None:
    """Section D8: the two logs together hold N for one source, in any mixture and order."""
    limiter = counting.limiter
    asks = [limiter.token_authenticated if number in proving else limiter.token_failed for number in range(30)]
    assert [counting.acquire(acquire("a", "s", limit=10)).accepted for acquire in asks] == [True] * 10 + [False] * 20


def test_a_stranger_cannot_lock_the_owner_out(counting: Counting) -> None:
    """Section D8: failures count for their source, not for the client everywhere."""
    limiter = counting.limiter
    failures = [counting.acquire(limiter.token_failed("a", f"s{number % 3}", limit=10)) for number in range(300)]
    assert sum(failure.accepted for failure in failures) == 3 * 10
    assert accepted_of(counting, 100, lambda: limiter.token_authenticated("a", "home", limit=10)) == 10


def test_proved_requests_count_from_every_source_together(counting: Counting) -> None:
    """Interface section 8: 10 per minute per `client_id`, from however many machines."""
    limiter = counting.limiter
    assert sum(counting.acquire(limiter.token_authenticated("a", f"s{n}", limit=10)).accepted for n in range(30)) == 10
    assert not counting.acquire(limiter.token_failed("a", "elsewhere", limit=10)).accepted


def test_retry_after_counts_entries_of_both_logs(counting: Counting) -> None:
    """The proved log was filled from elsewhere while this source's failed log held some: both must shrink."""
    limiter = counting.limiter
    assert accepted_of(counting, 2, lambda: limiter.token_failed("a", "x", limit=3)) == 2
    counting.clock.advance(10)
    assert accepted_of(counting, 3, lambda: limiter.token_authenticated("a", "y", limit=3)) == 3
    counting.clock.advance(5)
    assert counting.acquire(limiter.token_authenticated("a", "x", limit=3)) == RateDecision(False, 3, 0, 45, 55)
    assert counting.acquire(limiter.token_authenticated("a", "y", limit=3)) == RateDecision(False, 3, 0, 55, 55)


def test_300_attempts_without_a_known_client_are_accepted(
    counting: Counting,
) -> None:
    """Section D8: 300 per minute per source address."""
    limiter = counting.limiter
    assert accepted_of(counting, 301, lambda: limiter.token_unknown("s")) == 300
    assert counting.acquire(limiter.token_unknown("s")) == RateDecision(False, 300, 0, 60, 60)
    assert counting.acquire(limiter.token_unknown("t")).remaining == 299
    counting.clock.advance(59.999)
    assert counting.acquire(limiter.token_unknown("s")) == RateDecision(False, 300, 0, 1, 1)
    counting.clock.advance(0.002)  # A store counts requests of one microsecond one microsecond apart.
    assert accepted_of(counting, 301, lambda: limiter.token_unknown("s")) == 300


def test_a_changed_ceiling_applies_to_the_next_request(counting: Counting) -> None:
    """Section 8 rule 4: raised and lowered by an administrator; earlier requests still count."""
    limiter = counting.limiter
    assert accepted_of(counting, 4, lambda: limiter.api("a", limit=3)) == 3
    assert counting.acquire(limiter.api("a", limit=5)) == RateDecision(True, 5, 1, 60, 0)
    assert counting.acquire(limiter.api("a", limit=2)) == RateDecision(False, 2, 0, 60, 60)


def of_network(number: int) -> str:
    """Return a source in one /48."""
    return f"2001:db8:1:{number:x}::/64"


def test_a_48_fails_as_often_as_four_sources(counting: Counting) -> None:
    """Section D8: of a known client. Its owner may send from anywhere, there too; another /48 is not affected."""
    limiter = counting.limiter
    failures = [counting.acquire(limiter.token_failed("a", of_network(n % 20), limit=3)) for n in range(60)]
    assert [failure.accepted for failure in failures] == [True] * 12 + [False] * 48
    assert failures[-1] == RateDecision(False, 3, 0, 60, 60)
    assert counting.acquire(limiter.token_failed("b", of_network(0), limit=3)).accepted
    assert counting.acquire(limiter.token_failed("a", "2001:db8:2::/64", limit=3)).accepted
    assert counting.acquire(limiter.token_failed("a", "192.0.2.1", limit=3)).accepted
    assert accepted_of(counting, 5, lambda: limiter.token_authenticated("a", of_network(19), limit=3)) == 3
    counting.clock.advance(60.001)
    assert counting.acquire(limiter.token_failed("a", of_network(21), limit=3)).accepted


def test_what_a_64_refuses_does_not_count_for_its_48(counting: Counting) -> None:
    """Requests that the /48 refuses count for neither, so that `Retry-After` holds."""
    limiter = counting.limiter
    assert accepted_of(counting, 50, lambda: limiter.token_failed("a", of_network(1), limit=1)) == 1
    counting.clock.advance(10)
    assert [counting.acquire(limiter.token_failed("a", of_network(n), limit=1)).accepted for n in (2, 3, 4, 5)] == [
        True,
        True,
        True,
        False,
    ]
    assert counting.acquire(limiter.token_failed("a", of_network(5), limit=1)).retry_after_s == 50
    assert counting.acquire(limiter.token_failed("a", of_network(2), limit=1)).retry_after_s == 60
    counting.clock.advance(50.001)
    assert counting.acquire(limiter.token_failed("a", of_network(5), limit=1)).accepted
    assert not counting.acquire(limiter.token_failed("a", of_network(1), limit=1)).accepted


@pytest.mark.parametrize("kind", ["token_unknown", "bearer_unknown"])
def test_strangers_of_a_48_are_bounded(counting: Counting, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts that name no known client, and tokens that nobody was given, each by themselves."""
    monkeypatch.setattr(limiter_module, "UNKNOWN_PER_MINUTE", 3)
    acquire = getattr(counting.limiter, kind)
    assert [accepted_of(counting, 4, lambda: acquire("192.0.2.1")) for _ in range(2)] == [3, 0]
    assert sum(counting.acquire(acquire(of_network(number))).accepted for number in range(20)) == 12
    assert counting.acquire(acquire("2001:db8:2::/64")).accepted
    assert counting.acquire(counting.limiter.api("a", limit=1)).accepted
