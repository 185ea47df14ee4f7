"""Fakes of the clock. Tests may fake only time, chance and the outside world."""

from typing import NamedTuple

from stoplist.clock import Clock

_START_MS = 2_431_152_000_000  # 2047-01-15 08:00 UTC: later than any real time that a test run mixes in.


class FakeClock(Clock):
    """A clock that moves only when told to: both of its times with `advance`, the wall clock alone with `jump`."""

    def __init__(self, now_ms: int = _START_MS) -> None:
        super().__init__()
        self._wall_ns = now_ms * 1_000_000
        self._monotonic_ns = 1_000_000_000

    def advance(self, seconds: float) -> None:
        """Let this much time pass."""
        self._wall_ns += round(seconds * 1_000_000_000)
        self._monotonic_ns += round(seconds * 1_000_000_000)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward (or back, if negative), as an administrator would; no time passes."""
        self._wall_ns += round(seconds * 1_000_000_000)

    def local_ms(self) -> int:
        return self._wall_ns // 1_000_000

    def now_ms(self) -> int:
        return self.local_ms() + self.offset_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ns


class DiskUsage(NamedTuple):
    """A result of `shutil.disk_usage`."""

    total: int
    used: int
    free: int
