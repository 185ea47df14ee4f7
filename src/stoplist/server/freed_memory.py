"""Gives freed memory back to the system, which the C library keeps after thousands of connections have closed.

Source: docs/decisions/0034-connections.md.
"""

import ctypes
from collections.abc import Callable

# Fewer closed connections leave too little to be worth it: the call takes some milliseconds.
_FEWER_BY = 1_000


class FreedMemory:
    """Watches the number of connections, once a sweep."""

    def __init__(self, give_back: Callable[[], None] | None = None) -> None:
        self._give_back = give_back or _trim
        self._most = 0

    def note(self, connections: int) -> None:
        """Give freed memory back if the number of connections has fallen by many."""
        self._most = max(self._most, connections)
        if self._most - connections >= _FEWER_BY:
            self._most = connections
            self._give_back()


def _trim() -> None:
    """Let glibc return freed memory; do nothing with another C library."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
