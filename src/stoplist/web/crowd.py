"""How many requests of one source are looked into at once before they have shown whom they speak for.

Anybody can make up tokens, and each takes a look-up: without a bound a stranger with enough connections would fill the
queue before the database. Source: docs/interface.md section D4.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from stoplist.errors import RateLimited
from stoplist.web.forwarded import source_key

AT_ONCE = 256


class Crowd:
    """The requests of each source that are being looked into; an IPv6 source is its /64."""

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()

    @contextmanager
    def one_of(self, source_ip: str) -> Iterator[None]:
        """While this lasts it is one of so many. Raises RateLimited at once where there are too many already."""
        source = source_key(source_ip)
        if self._inside[source] >= AT_ONCE:
            raise RateLimited(
                f"More than {AT_ONCE} requests of this address are being looked into: send fewer at a time.",
                retry_after_s=1,
            )
        self._inside[source] += 1
        try:
            yield
        finally:
            self._inside[source] -= 1
            if not self._inside[source]:
                del self._inside[source]
