"""When a locked account or source may try again."""

from hypothesis import given
from hypothesis import strategies as st

from stoplist.staff.attempts import MAX_FAILURES_PER_ACCOUNT, MAX_FAILURES_PER_SOURCE, PastAttempt, locked_until_ms
from stoplist.staff.lifetimes import ATTEMPT_MS

ANN, BOB = b"a" * 32, b"b" * 32


def test_nothing_is_locked_below_both_limits() -> None:
    """Nine failures of an account, ninety-nine of a source."""
    others = [PastAttempt(bytes([number]) * 32, 1000) for number in range(90)]
    assert locked_until_ms([PastAttempt(ANN, 1000)] * 9 + others, ANN) == 0
    assert locked_until_ms([], ANN) == 0


def test_an_account_unlocks_when_its_tenth_newest_failure_expires() -> None:
    """Other accounts are not locked."""
    ann = [PastAttempt(ANN, 1000 - number) for number in range(12)]
    assert locked_until_ms(ann, ANN) == 1000 - 9 + ATTEMPT_MS
    assert locked_until_ms(ann, BOB) == 0


@given(st.lists(st.tuples(st.sampled_from([ANN, BOB, b"c" * 32]), st.integers(0, 50)), max_size=130))
def test_the_lock_ends_when_a_naive_count_says_so(failures: list[tuple[bytes, int]]) -> None:
    """That is the first millisecond whose preceding window holds fewer failures than the limits."""
    attempts = [PastAttempt(*failure) for failure in sorted(failures, key=lambda failure: -failure[1])]

    def is_open(now_ms: int) -> bool:
        counted = [attempt for attempt in attempts if attempt.at_ms > now_ms - ATTEMPT_MS]
        of_ann = [attempt for attempt in counted if attempt.account_hash == ANN]
        return len(counted) < MAX_FAILURES_PER_SOURCE and len(of_ann) < MAX_FAILURES_PER_ACCOUNT

    locked_ms = locked_until_ms(attempts, ANN)
    assert locked_ms == (
        0 if is_open(50) else next(now_ms for now_ms in range(ATTEMPT_MS, ATTEMPT_MS + 60) if is_open(now_ms))
    )
