"""How many requests of one source are looked into at once before they have shown whom they speak for.

Anybody can make up tokens, and each takes a look-up: without a bound a stranger with enough connections would fill the
queue before the database. Source: docs/interface.md section D4.
"""

from collections import Counter

from stoplist.errors import RateLimited
from stoplist.source import source_key

AT_ONCE = 256


class Crowd:
    """The requests of each source that are being looked into; an IPv6 source is its /64."""

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()

    def one_of(self, source_ip: str) -> "_Inside":
        """While this lasts it is one of so many. Raises RateLimited at once where there are too many already."""
        return _Inside(self._inside, source_key(source_ip))


class _Inside:
    # No generator: every request of the API passes here.
    __slots__ = ("_counts", "_source")

    def __init__(self, counts: Counter[str], source: str) -> None:
        self._counts, self._source = counts, source

    def __enter__(self) -> None:
        count = self._counts[self._source]
        if count >= AT_ONCE:
            raise RateLimited(
                f"More than {AT_ONCE} requests of this address are being looked into: send fewer at a time.",
                retry_after_s=1,
            )
        self._counts[self._source] = count + 1

    def __exit__(self, *_: object) -> None:
        count = self._counts[self._source] - 1
        if count:
            self._counts[self._source] = count
        else:
            del self._counts[self._source]
