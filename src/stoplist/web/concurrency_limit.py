"""Limits concurrent unauthenticated requests per source address.

Anybody can make up tokens, and each one costs a look-up: without a limit, a stranger with enough connections would fill
the queue of the database. Source: docs/interface.md section D4.
"""

from collections import Counter

from stoplist.errors import RateLimited
from stoplist.source import SOURCES_PER_NETWORK, source_key, wider_source_key

MAX_CONCURRENT_PER_SOURCE = 256


class PerSourceConcurrency:
    """Counts the requests that are being authenticated, per source; an IPv6 source is its /64, and its /48."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def acquire(self, source_ip: str) -> "_Slot":
        """Return a context that holds one slot of the source; entering it raises RateLimited if none is free."""
        source = source_key(source_ip)
        return _Slot(self._counts, source, wider_source_key(source))


class _Slot:
    # A class, as a generator would be slower: every request of the API passes here.
    __slots__ = ("_counts", "_network", "_source")

    def __init__(self, counts: Counter[str], source: str, network: str | None) -> None:
        self._counts, self._source, self._network = counts, source, network

    def __enter__(self) -> None:
        count = self._counts[self._source]
        if count >= MAX_CONCURRENT_PER_SOURCE:
            raise _too_many(MAX_CONCURRENT_PER_SOURCE)
        if self._network is not None:
            of_network = self._counts[self._network]
            if of_network >= MAX_CONCURRENT_PER_SOURCE * SOURCES_PER_NETWORK:
                raise _too_many(MAX_CONCURRENT_PER_SOURCE * SOURCES_PER_NETWORK)
            self._counts[self._network] = of_network + 1
        self._counts[self._source] = count + 1

    def __exit__(self, *_: object) -> None:
        _release(self._counts, self._source)
        if self._network is not None:
            _release(self._counts, self._network)


def _release(counts: Counter[str], source: str) -> None:
    count = counts[source] - 1
    if count:
        counts[source] = count
    else:
        del counts[source]


def _too_many(most: int) -> RateLimited:
    return RateLimited(
        f"More than {most} requests from this address or network wait for authentication. Send fewer at once.",
        retry_after_s=1,
    )
