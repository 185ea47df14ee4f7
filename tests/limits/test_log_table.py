"""The logs by key: which logs are kept, and for how long."""

import sys

from stoplist.limits.log_table import LogTable
from stoplist.limits.sliding_log import EMPTY_LOG, WINDOW_NS


def record(logs: LogTable[str], key: str, now_ns: int) -> None:
    logs.record(key, logs.get(key, EMPTY_LOG), now_ns)


def test_a_lookup_creates_no_log() -> None:
    """So a refused request leaves nothing in memory."""
    logs = LogTable[str]()
    assert logs.get("a", EMPTY_LOG).count(0) == 0
    assert len(logs) == 0


def test_each_key_has_its_own_log() -> None:
    """Nothing recorded for one key counts for another, or in the log that stands for a missing one."""
    logs = LogTable[str]()
    record(logs, "a", 1)
    record(logs, "a", 2)
    record(logs, "b", 3)
    assert [logs.get(key, EMPTY_LOG).count(3) for key in ("a", "b", "c")] == [2, 1, 0]


def test_a_log_is_dropped_once_its_newest_entry_has_expired() -> None:
    """The expiry of its oldest entry does not count, and it is not dropped one nanosecond early."""
    logs = LogTable[str]()
    record(logs, "a", 0)
    record(logs, "b", 1)
    record(logs, "a", 2)
    logs.drop_expired(WINDOW_NS, at_most=10)
    assert set(logs) == {"a", "b"}
    logs.drop_expired(WINDOW_NS + 1, at_most=10)
    assert set(logs) == {"a"}
    logs.drop_expired(WINDOW_NS + 2, at_most=10)
    assert set(logs) == set()


def test_an_empty_log_is_dropped_too() -> None:
    """A log that was only read, and whose entries have expired, only takes memory."""
    logs = LogTable[str]()
    record(logs, "a", 0)
    assert logs["a"].count(WINDOW_NS) == 0
    logs.drop_expired(WINDOW_NS, at_most=10)
    assert set(logs) == set()


def test_a_call_drops_a_bounded_number_of_logs() -> None:
    """So that one call is short; the result says whether another may find more."""
    logs = LogTable[str]()
    for key in "abcde":
        record(logs, key, 0)
    assert logs.drop_expired(WINDOW_NS, at_most=3)
    assert set(logs) == {"d", "e"}
    assert not logs.drop_expired(WINDOW_NS, at_most=3)
    assert set(logs) == set()


def test_memory_of_dropped_logs_is_released() -> None:
    """A minute with many keys must not take memory for ever; the remaining logs are kept."""
    logs = LogTable[str]()
    for number in range(10_000):
        record(logs, str(number), 0)
    full_bytes = sys.getsizeof(logs)
    record(logs, "lasting", 1)
    logs.drop_expired(WINDOW_NS, at_most=20_000)
    assert set(logs) == {"lasting"}
    assert sys.getsizeof(logs) < full_bytes / 100
    record(logs, "lasting", WINDOW_NS)
    assert logs["lasting"].count(WINDOW_NS) == 2
