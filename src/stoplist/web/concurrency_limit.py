"""How many requests of one source are looked into at once before they have shown whom they speak for.

Anybody can make up tokens, and each takes a look-up: without a bound a stranger with enough connections would fill the
queue before the database. Source: docs/interface.md section D4.
"""

from collections import Counter

from stoplist.errors import RateLimited
from stoplist.source import source_key

MAX_CONCURRENT_PER_SOURCE = 256


class PerSourceConcurrency:
    """The requests of each source that are being looked into; an IPv6 source is its /64."""

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()

    def acquire(self, source_ip: str) -> "_Slot":
        """While this lasts it is one of so many. Raises RateLimited at once where there are too many already."""
        return _Slot(self._inside, source_key(source_ip))


class _Slot:
    # No generator: every request of the API passes here.
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
