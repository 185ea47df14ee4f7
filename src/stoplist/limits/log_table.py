"""Sliding logs by key, kept only while one of their entries is counted.

Source: docs/interface.md section D8.
"""

from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import TypeVar

from stoplist.limits.sliding_log import EMPTY_LOG, SlidingLog

Key = TypeVar("Key", bound=Hashable)


class LogTable(OrderedDict[Key, SlidingLog]):
    """One log per key, in the order of their newest entries, so that expired logs come first.

    Look up with `get(key, EMPTY_LOG)`: a look-up must not create a log, or refused requests would fill the memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dropped_count = 0

    def record(self, key: Key, log: SlidingLog, now_ns: int) -> None:
        """Append an accepted request to the log of this key, which `get` has just returned."""
        if log is EMPTY_LOG:
            log = self[key] = SlidingLog()
        else:
            self.move_to_end(key)
        log.append(now_ns)

    def drop_expired(self, now_ns: int, *, at_most: int) -> bool:
        """Drop up to `at_most` logs without a counted entry; return whether more may be left to drop."""
        expired = [key for key, log in islice(self.items(), at_most) if log.is_over(now_ns)]
        for key in expired:
            del self[key]
        self._dropped_count += len(expired)
        self._shrink()
        return len(expired) == at_most

    def _shrink(self) -> None:
        # A dict keeps its largest size until it is cleared.
        if self._dropped_count > 64 * len(self):
            kept = list(self.items())
            self.clear()
            self.update(kept)
            self._dropped_count = 0
