"""The only source of time follows the database's clock."""

import time

from stoplist.clock import Clock
from tests.fakes import FakeClock


def test_the_clock_tells_whole_milliseconds_since_1970() -> None:
    """Stored times are integers that every machine reads the same way."""
    before_ms = int(time.time() * 1000)
    now_ms = Clock().now_ms()
    assert isinstance(now_ms, int)
    assert before_ms <= now_ms <= int(time.time() * 1000) + 1


def test_the_databases_clock_is_read_half_way_through_the_query() -> None:
    """Section D1, Clock: after a query of 80 ms the database's reading is 40 ms old."""
    clock = FakeClock(10_000)
    clock.follow(25_000, asked_ms=9_920, answered_ms=10_000)
    assert clock.now_ms() == 25_040
    clock.advance(2)
    assert clock.now_ms() == 27_040


def test_following_twice_does_not_add_up() -> None:
    """The offset is measured with the machine's own time, without the earlier offset."""
    clock = FakeClock(10_000)
    for _ in range(2):
        clock.follow(25_000, asked_ms=clock.local_ms(), answered_ms=clock.local_ms())
    assert clock.now_ms() == 25_000
    assert clock.local_ms() == 10_000


def test_a_database_behind_this_machine_is_followed_too() -> None:
    """The offset may be negative."""
    clock = FakeClock(10_000)
    clock.follow(9_000, asked_ms=10_000, answered_ms=10_000)
    assert clock.now_ms() == 9_000


def test_the_offset_does_not_affect_durations() -> None:
    """Rate limits use a time that never jumps."""
    clock = FakeClock()
    before_ns = clock.monotonic_ns()
    clock.follow(clock.now_ms() + 3_600_000, asked_ms=clock.local_ms(), answered_ms=clock.local_ms())
    assert clock.monotonic_ns() == before_ns
