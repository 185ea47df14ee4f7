"""Time comes from one place, and that place follows the database's clock."""

import time

from stoplist.clock import Clock
from tests.fakes import FakeClock


def test_the_clock_tells_whole_milliseconds_since_1970() -> None:
    """Stored times are integers that any machine reads the same way."""
    before_ms = int(time.time() * 1000)
    now_ms = Clock().now_ms()
    assert isinstance(now_ms, int)
    assert before_ms <= now_ms <= int(time.time() * 1000) + 1


def test_the_clock_follows_the_database_from_half_way_between_question_and_answer() -> None:
    """Section D1, Clock: of a question that took 80 ms the database's reading is 40 ms old."""
    clock = FakeClock(10_000)
    clock.follow(25_000, asked_ms=9_920, answered_ms=10_000)
    assert clock.now_ms() == 25_040
    clock.advance(2)
    assert clock.now_ms() == 27_040


def test_following_twice_does_not_add_up() -> None:
    """The offset is measured by the machine's own time, which the earlier offset does not touch."""
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


def test_durations_do_not_feel_the_offset() -> None:
    """Rate limits count by a time that never jumps."""
    clock = FakeClock()
    before_ns = clock.monotonic_ns()
    clock.follow(clock.now_ms() + 3_600_000, asked_ms=clock.local_ms(), answered_ms=clock.local_ms())
    assert clock.monotonic_ns() == before_ns
