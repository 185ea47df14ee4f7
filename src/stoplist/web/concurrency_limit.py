"""Limits concurrent unauthenticated requests per source address.

Anybody can make up tokens, and each one costs a look-up: without a limit, a stranger with enough connections would fill
the queue of the database. Source: docs/interface.md section D4.
"""

from collections import Counter

from stoplist.errors import RateLimited
from stoplist.source import source_key

MAX_CONCURRENT_PER_SOURCE = 256


class PerSourceConcurrency:
    """Counts the requests that are being authenticated, per source; an IPv6 source is its /64."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def acquire(self, source_ip: str) -> "_Slot":
        """Return a context that holds one slot of the source; entering it raises RateLimited if none is free."""
        return _Slot(self._counts, source_key(source_ip))


class _Slot:
    # A class, as a generator would be slower: every request of the API passes here.
    __slots__ = ("_counts", "_source")

    def __init__(self, counts: Counter[str], source: str) -> None:
        self._counts, self._source = counts, source

    def __enter__(self) -> None:
        count = self._counts[self._source]
        if count >= MAX_CONCURRENT_PER_SOURCE:
            raise RateLimited(
                f"More than {MAX_CONCURRENT_PER_SOURCE} requests from this address wait for authentication. "
                "Send fewer at once.",
                retry_after_s=1,
            )
        self._counts[self._source] = count + 1

    def __exit__(self, *_: object) -> None:
        count = self._counts[self._source] - 1
        if count:
            self._counts[self._source] = count
        else:
            del self._counts[self._source]
