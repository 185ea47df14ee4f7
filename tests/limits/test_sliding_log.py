"""The log itself: what it counts, when an entry expires, what it costs."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from stoplist.limits.sliding_log import WINDOW_NS, SlidingLog, nth_oldest_ns

gaps_ns = st.one_of(
    st.sampled_from([0, 1, WINDOW_NS // 3, WINDOW_NS - 1, WINDOW_NS, WINDOW_NS + 1]),
    st.integers(0, 2 * WINDOW_NS),
)
times_ns = st.lists(gaps_ns, max_size=60).map(lambda gaps: list(accumulate(gaps)))


def log_of(times: list[int]) -> SlidingLog:
    log = SlidingLog()
    for time_ns in times:
        log.append(time_ns)
    return log


def test_an_entry_counts_until_it_is_sixty_seconds_old() -> None:
    """Section D8: at exactly 60 s the entry has expired, one nanosecond before it has not."""
    log = log_of([5])
    assert log.count(5) == 1
    assert log.count(5 + WINDOW_NS - 1) == 1
    assert log.count(5 + WINDOW_NS) == 0


def test_a_log_is_over_once_its_newest_entry_has_expired() -> None:
    """It is over even if nobody has counted since; a log without entries is over too."""
    log = log_of([5, 7])
    assert not log.is_over(7 + WINDOW_NS - 1)
    assert log.is_over(7 + WINDOW_NS)
    assert log.count(7 + WINDOW_NS) == 0
    assert log.is_over(7 + WINDOW_NS)
    assert SlidingLog().is_over(0)


def test_an_empty_log_counts_nothing() -> None:
    assert SlidingLog().count(0) == 0


@given(times_ns)
def test_the_count_equals_that_of_a_full_scan(times: list[int]) -> None:
    """`count` and `time_ns` answer as a scan of all entries would, whenever entries come and expire."""
    log = SlidingLog()
    for seen, now_ns in enumerate(times, start=1):
        log.append(now_ns)
        young = [time_ns for time_ns in times[:seen] if now_ns - time_ns < WINDOW_NS]
        assert log.count(now_ns) == len(young)
        assert [log.time_ns(index) for index in range(len(young))] == young


@given(times_ns)
def test_expired_entries_take_at_most_a_quarter_of_the_memory(times: list[int]) -> None:
    """8 bytes per counted entry, and at most a third more."""
    log = SlidingLog()
    for now_ns in times:
        log.append(now_ns)
        count = log.count(now_ns)
        assert 3 * log.nbytes() <= 4 * 8 * count


def test_a_million_entries_take_eight_bytes_each() -> None:
    """A minute later none of that memory is left."""
    log = log_of(list(range(1_000_000)))
    assert log.count(999_999) == 1_000_000
    assert log.nbytes() == 8_000_000
    assert log.count(WINDOW_NS + 999_998) == 1
    assert log.nbytes() == 8
    assert log.count(WINDOW_NS + 999_999) == 0
    assert log.nbytes() == 0


@given(st.lists(st.integers(0, 50)).map(sorted), st.lists(st.integers(0, 50)).map(sorted), st.data())
def test_the_nth_oldest_of_two_logs_is_that_of_their_merged_times(
    first: list[int], second: list[int], data: st.DataObject
) -> None:
    """This holds for every n, with ties and with an empty log on either side."""
    merged = sorted(first + second)
    if not merged:
        return
    n = data.draw(st.integers(1, len(merged)))
    assert nth_oldest_ns(n, log_of(first), len(first), log_of(second), len(second)) == merged[n - 1]
