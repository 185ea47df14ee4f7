"""An exact count of what was accepted in the last 60 seconds, at 8 bytes an entry.

Times are integer nanoseconds of one monotonic clock and never go back from one call to the next. An entry is
counted while it is younger than 60 s: at exactly 60 s it has left.
Source: docs/interface.md section D8.
"""

from array import array
from bisect import bisect_left, bisect_right

WINDOW_S = 60
WINDOW_NS = WINDOW_S * 1_000_000_000


class SlidingLog:
    """The times of accepted requests, oldest first; those that have left are skipped, then cut off."""

    __slots__ = ("_start", "_times_ns")

    def __init__(self) -> None:
        self._times_ns = array("q")
        self._start = 0

    def count(self, now_ns: int) -> int:
        """How many entries are younger than 60 s; the others are gone afterwards."""
        times_ns, start = self._times_ns, self._start
        edge_ns = now_ns - WINDOW_NS
        if start < len(times_ns) and times_ns[start] <= edge_ns:
            # Searched, not walked: a million entries that leave at once must not hold the loop.
            self._start = start = bisect_right(times_ns, edge_ns, start)
            if start * 4 > len(times_ns):
                # Cut off a quarter at a time: each entry is moved at most three times before it leaves.
                del times_ns[:start]
                self._start = start = 0
        return len(times_ns) - start

    def append(self, now_ns: int) -> None:
        """Record a request accepted at `now_ns`, which is not earlier than any recorded before."""
        self._times_ns.append(now_ns)

    def remove(self, at_ns: int) -> None:
        """One entry of that time is gone, if there is one."""
        index = bisect_left(self._times_ns, at_ns, self._start)
        if index < len(self._times_ns) and self._times_ns[index] == at_ns:
            del self._times_ns[index]

    def time_ns(self, index: int) -> int:
        """When entry `index` was accepted, counted from 0 = the oldest that the last `count` saw."""
        return self._times_ns[self._start + index]

    def is_over(self, now_ns: int) -> bool:
        """Whether nothing in it is younger than 60 s."""
        return not self._times_ns or self._times_ns[-1] <= now_ns - WINDOW_NS

    def nbytes(self) -> int:
        """The size of the recorded times, those not yet cut off included."""
        return len(self._times_ns) * self._times_ns.itemsize


# Stands for the log of a key that has none; nothing is ever appended to it.
EMPTY_LOG = SlidingLog()


def nth_oldest_ns(n: int, first: SlidingLog, first_count: int, second: SlidingLog, second_count: int) -> int:
    """The time of the `n`-th oldest (from 1) of the entries of two logs together, in O(log n).

    The counts are what `count` has just answered; `n` is at most their sum.
    """
    # `taken` of them are from the first log: as many as are older than what the second gives in their stead.
    fewest, most = max(0, n - second_count), min(n, first_count)
    taken = fewest + bisect_left(range(fewest, most), True, key=lambda i: first.time_ns(i) >= second.time_ns(n - 1 - i))
    last_of_first = first.time_ns(taken - 1) if taken else -1
    last_of_second = second.time_ns(n - taken - 1) if taken < n else -1
    return max(last_of_first, last_of_second)
