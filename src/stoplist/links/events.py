"""Counts clicks on links that do not work.

These are links of a revoked key, and links without an acceptable address. The counts are kept in memory and written
once a minute, so that opening a page writes nothing. A process remembers whom it has turned away, but only by a hash
and until it stops, so a person who comes back later may be counted again. Source: docs/interface.md section D15.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable

from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries

_COUNT = load_queries(__package__)["count_link_events"]

_MAX_REMEMBERED = 100_000


class LinkEvents:
    """The clicks that one process has not written yet."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._remembered: set[bytes] = set()
        self._turned_away: Counter[str] = Counter()
        self._unusable: Counter[str] = Counter()
        self._last_unusable_ms: dict[str, int] = {}

    def turned_away(self, link_key_id: str, person: bytes | None) -> None:
        """Count a person whose link no longer works. The same person counts once, and None every time."""
        if person is not None:
            digest = hashlib.blake2b(person, key=self._salt, digest_size=8, person=b"link").digest()
            if digest in self._remembered:
                return
            if len(self._remembered) < _MAX_REMEMBERED:
                self._remembered.add(digest)
        self._turned_away[link_key_id] += 1

    def unusable(self, link_key_id: str, *, now_ms: int) -> None:
        """Count a click on a link without an acceptable address."""
        self._unusable[link_key_id] += 1
        self._last_unusable_ms[link_key_id] = now_ms

    async def flush(self, database: Database) -> None:
        """Write the counts, or keep them if they cannot be written now."""
        turned_away, unusable, last_ms = self._turned_away, self._unusable, self._last_unusable_ms
        if not turned_away and not unusable:
            return
        self._turned_away, self._unusable, self._last_unusable_ms = Counter(), Counter(), {}
        try:
            await database.write(_writing(turned_away, unusable, last_ms))
        except BaseException:
            self._turned_away.update(turned_away)
            self._unusable.update(unusable)
            self._last_unusable_ms = last_ms | self._last_unusable_ms
            raise


def _writing(
    turned_away: Counter[str], unusable: Counter[str], last_ms: dict[str, int]
) -> Callable[[Transaction], Awaitable[None]]:
    async def write(transaction: Transaction) -> None:
        for link_key_id in sorted(turned_away | unusable):
            await transaction.run(
                _COUNT,
                link_key_id=link_key_id,
                turned_away=turned_away[link_key_id],
                unusable=unusable[link_key_id],
                last_unusable_ms=last_ms.get(link_key_id),
            )

    return write
