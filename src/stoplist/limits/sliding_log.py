"""An exact count of the requests accepted in the last 60 seconds, at 8 bytes per entry.

Times are integer nanoseconds of one monotonic clock and never go back from one call to the next. An entry is counted
while it is younger than 60 s: at exactly 60 s it no longer is.
Source: docs/interface.md section D8.
"""

from array import array
from bisect import bisect_left, bisect_right

WINDOW_S = 60
WINDOW_NS = WINDOW_S * 1_000_000_000


class SlidingLog:
    """The times of accepted requests, oldest first. Expired entries are skipped, then cut off."""

    __slots__ = ("_start", "_times_ns")

    def __init__(self) -> None:
        self._times_ns = array("q")
        self._start = 0

    def count(self, now_ns: int) -> int:
        """Return the number of entries younger than 60 s, and discard the others."""
        times_ns, start = self._times_ns, self._start
        expired_ns = now_ns - WINDOW_NS
        if start < len(times_ns) and times_ns[start] <= expired_ns:
            # Searched, not walked: a million entries that expire at once must not block the event loop.
            self._start = start = bisect_right(times_ns, expired_ns, start)
            if start * 4 > len(times_ns):
                # Cut off only after a quarter has expired: each entry is moved at most three times.
                del times_ns[:start]
                self._start = start = 0
        return len(times_ns) - start

    def append(self, now_ns: int) -> None:
        """Record a request accepted at `now_ns`, which is not earlier than any recorded before."""
        self._times_ns.append(now_ns)

    def remove(self, at_ns: int) -> None:
        """Remove one entry of that time, if there is one."""
        index = bisect_left(self._times_ns, at_ns, self._start)
        if index < len(self._times_ns) and self._times_ns[index] == at_ns:
            del self._times_ns[index]

    def time_ns(self, index: int) -> int:
        """Return when entry `index` was accepted; 0 is the oldest entry that the last `count` counted."""
        return self._times_ns[self._start + index]

    def is_over(self, now_ns: int) -> bool:
        """Return whether no entry is younger than 60 s."""
        return not self._times_ns or self._times_ns[-1] <= now_ns - WINDOW_NS

    def nbytes(self) -> int:
        """Return the size of the recorded times, including those not yet cut off."""
        return len(self._times_ns) * self._times_ns.itemsize


# Stands for a missing log; nothing is ever appended to it.
EMPTY_LOG = SlidingLog()


def nth_oldest_ns(n: int, first: SlidingLog, first_count: int, second: SlidingLog, second_count: int) -> int:
    """Return the time of the `n`-th oldest (from 1) of the entries of two logs together, in O(log n).

    The counts are those that `count` has just returned; `n` is at most their sum.
    """
    # `first_taken` of the `n` are from the first log: those older than the entries of the second log in their place.
    low, high = max(0, n - second_count), min(n, first_count)
    first_taken = low + bisect_left(range(low, high), True, key=lambda i: first.time_ns(i) >= second.time_ns(n - 1 - i))
    last_of_first = first.time_ns(first_taken - 1) if first_taken else -1
    last_of_second = second.time_ns(n - first_taken - 1) if first_taken < n else -1
    return max(last_of_first, last_of_second)
