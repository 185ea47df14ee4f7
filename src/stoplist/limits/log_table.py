"""Sliding logs by key, held only while an entry in them is counted.

Source: docs/interface.md section D8.
"""

from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import TypeVar

from stoplist.limits.sliding_log import EMPTY_LOG, SlidingLog

Key = TypeVar("Key", bound=Hashable)


class LogTable(OrderedDict[Key, SlidingLog]):
    """One log a key, in the order of their newest entries: what may be dropped is always in front.

    Look with `get(key, NOTHING)`: to look must not make a log, or refusals would fill the memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dropped = 0

    def record(self, key: Key, log: SlidingLog, now_ns: int) -> None:
        """Append an accepted request to the log of this key, which `get` has just answered."""
        if log is EMPTY_LOG:
            log = self[key] = SlidingLog()
        else:
            self.move_to_end(key)
        log.append(now_ns)

    def drop_expired(self, now_ns: int, *, at_most: int) -> bool:
        """Drop up to `at_most` logs whose every entry has left; whether more may be left to drop."""
        over = [key for key, log in islice(self.items(), at_most) if log.is_over(now_ns)]
        for key in over:
            del self[key]
        self._dropped += len(over)
        self._give_back()
        return len(over) == at_most

    def _give_back(self) -> None:
        # A dict keeps the table of its largest size until it is cleared.
        if self._dropped > 64 * len(self):
            kept = list(self.items())
            self.clear()
            self.update(kept)
            self._dropped = 0
