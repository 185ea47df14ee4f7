"""When a door opens again: counted by account and source, and by source."""

from hypothesis import given
from hypothesis import strategies as st

from stoplist.staff.attempts import MOST_OF_A_SOURCE, MOST_OF_AN_ACCOUNT, Earlier, locked_until_ms
from stoplist.staff.lifetimes import ATTEMPT_MS

ANN, BOB = b"a" * 32, b"b" * 32


def test_the_door_is_open_below_either_limit() -> None:
    """Nine of an account, ninety-nine of a source."""
    others = [Earlier(bytes([number]) * 32, 1000) for number in range(90)]
    assert locked_until_ms([Earlier(ANN, 1000)] * 9 + others, ANN) == 0
    assert locked_until_ms([], ANN) == 0


def test_the_door_opens_when_the_tenth_newest_counts_no_more() -> None:
    """Those of other accounts close it for nobody else."""
    ann = [Earlier(ANN, 1000 - number) for number in range(12)]
    assert locked_until_ms(ann, ANN) == 1000 - 9 + ATTEMPT_MS
    assert locked_until_ms(ann, BOB) == 0


@given(st.lists(st.tuples(st.sampled_from([ANN, BOB, b"c" * 32]), st.integers(0, 50)), max_size=130))
def test_it_opens_when_a_naive_count_says_so(made: list[tuple[bytes, int]]) -> None:
    """The first millisecond at which fewer than the limits lie in the window behind it."""
    attempts = [Earlier(*one) for one in sorted(made, key=lambda one: -one[1])]

    def is_open(now_ms: int) -> bool:
        counted = [one for one in attempts if one.at_ms > now_ms - ATTEMPT_MS]
        of_ann = [one for one in counted if one.account_hash == ANN]
        return len(counted) < MOST_OF_A_SOURCE and len(of_ann) < MOST_OF_AN_ACCOUNT

    locked_ms = locked_until_ms(attempts, ANN)
    assert locked_ms == (
        0 if is_open(50) else next(now_ms for now_ms in range(ATTEMPT_MS, ATTEMPT_MS + 60) if is_open(now_ms))
    )
