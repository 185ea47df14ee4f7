"""The only source of time; every rule takes the time as a parameter.

Source: docs/interface.md section D1, Clock.
"""

import time

DAY_S = 86_400
DAY_MS = DAY_S * 1000


class Clock:
    """Wall time in milliseconds since 1970 UTC, moved by `offset_ms` to follow the database's clock."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Return the time that is stored and compared: whole milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000 + self.offset_ms

    def monotonic_ns(self) -> int:
        """Return a time that never jumps, for durations and rate limits: nanoseconds since an unspecified moment."""
        return time.monotonic_ns()

    def follow(self, database_ms: int, *, asked_ms: int, answered_ms: int) -> None:
        """Follow the database's clock, assuming that it was read half-way between the question and the answer.

        `asked_ms` and `answered_ms` are `local_ms` before and after the question.
        """
        self.offset_ms = database_ms - (asked_ms + answered_ms) // 2

    def local_ms(self) -> int:
        """Return this machine's wall time, without the offset."""
        return time.time_ns() // 1_000_000
