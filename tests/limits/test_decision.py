"""One decision over two logs, at given times."""

from stoplist.limits.decision import RateDecision, decide
from stoplist.limits.sliding_log import EMPTY_LOG, WINDOW_NS, SlidingLog
from tests.constants import SECOND_NS

START_NS = 1_000 * SECOND_NS


def log_of(*times_s: float) -> SlidingLog:
    """Return a log with entries this many seconds after the start."""
    log = SlidingLog()
    for time_s in times_s:
        log.append(START_NS + round(time_s * SECOND_NS))
    return log


def at(time_s: float, own: SlidingLog, other: SlidingLog = EMPTY_LOG, *, limit: int) -> RateDecision:
    return decide(own, other, limit=limit, now_ns=START_NS + round(time_s * SECOND_NS))


def test_the_first_request_leaves_one_less_and_a_full_minute() -> None:
    """The example of section D8: `r=59;t=60`."""
    assert at(0, EMPTY_LOG, limit=60) == RateDecision(True, 60, 59, 60, 0)


def test_reset_is_the_time_until_the_oldest_entry_expires() -> None:
    """`t` covers both logs, whichever holds the oldest entry, and is rounded up."""
    assert at(20.5, log_of(10), log_of(5, 15), limit=10).reset_s == 45
    assert at(20.5, log_of(5), log_of(10, 15), limit=10).reset_s == 45
    assert at(20.5, EMPTY_LOG, log_of(5.5), limit=10).reset_s == 45
    assert at(20.5, log_of(5.5), EMPTY_LOG, limit=10).reset_s == 45


def test_both_logs_together_fill_the_ceiling() -> None:
    """A request is refused if its two logs together hold N, whichever log would record it."""
    one, two = log_of(1), log_of(2, 3)
    assert at(10, one, two, limit=4) == RateDecision(True, 4, 0, 51, 0)
    assert at(10, one, two, limit=3) == RateDecision(False, 3, 0, 51, 51)
    assert at(10, two, one, limit=3) == RateDecision(False, 3, 0, 51, 51)


def test_a_decision_records_nothing() -> None:
    """Deciding twice gives the same answer; the caller records accepted requests."""
    log = log_of(1)
    assert at(2, log, limit=2) == at(2, log, limit=2)
    assert EMPTY_LOG.count(START_NS) == 0


def test_retry_after_is_rounded_up_and_at_least_one_second() -> None:
    """After that many whole seconds the next request is accepted; one second earlier it is not."""
    assert at(0.0, log_of(0), limit=1).retry_after_s == 60
    assert at(0.4, log_of(0), limit=1).retry_after_s == 60
    assert at(1.0, log_of(0), limit=1).retry_after_s == 59
    assert decide(log_of(0), EMPTY_LOG, limit=1, now_ns=START_NS + WINDOW_NS - 1).retry_after_s == 1
    assert decide(log_of(0), EMPTY_LOG, limit=1, now_ns=START_NS + WINDOW_NS).accepted


def test_after_a_lowered_ceiling_several_entries_must_expire() -> None:
    """Three counted and a limit of two: the second oldest must expire too, whichever log it is in."""
    assert at(30, log_of(1, 5, 9), limit=2) == RateDecision(False, 2, 0, 31, 35)
    assert at(30, log_of(1, 9), log_of(5), limit=2) == RateDecision(False, 2, 0, 31, 35)
    assert at(30, log_of(5), log_of(1, 9), limit=2) == RateDecision(False, 2, 0, 31, 35)
    assert at(30, EMPTY_LOG, log_of(1, 5, 9), limit=2) == RateDecision(False, 2, 0, 31, 35)
    assert at(30.5, log_of(1, 5, 9), limit=2) == RateDecision(False, 2, 0, 31, 35)
    assert at(30, log_of(1, 5, 9), limit=1) == RateDecision(False, 1, 0, 31, 39)


def test_remaining_is_never_negative() -> None:
    """A limit below the present count leaves 0."""
    assert at(30, log_of(1, 5, 9), log_of(2), limit=2).remaining == 0


def test_a_ceiling_of_zero_accepts_nothing_and_names_a_minute() -> None:
    """No time would help, but the answer is a refusal, not an error."""
    assert at(0, EMPTY_LOG, limit=0) == RateDecision(False, 0, 0, 60, 60)
    assert at(30, log_of(1, 5), limit=0) == RateDecision(False, 0, 0, 31, 60)


def test_a_huge_ceiling_works() -> None:
    """An administrator may set any limit."""
    assert at(0, log_of(0), limit=10**9) == RateDecision(True, 10**9, 10**9 - 2, 60, 0)
