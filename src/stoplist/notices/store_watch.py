"""Tells the operator of a database that fails for a minute, from memory: a notice could not be stored.

Each process tells for itself, once an outage. Where the feeds are in a database of their own, both are watched.
Source: docs/interface.md section D16.
"""

import logging
from collections.abc import Callable
from functools import partial

from stoplist import ids, rfc3339
from stoplist.clock import Clock
from stoplist.db import ALL_FEEDS, Database, Transaction
from stoplist.db.query import load_queries
from stoplist.db.split import feeds_of
from stoplist.errors import StoreUnavailable
from stoplist.notices.delivery import WebhookSender
from stoplist.notices.model import STORE_UNAVAILABLE, body_text

_QUERIES = load_queries(__package__)
_READ = _QUERIES["probe_read"]
_READ_FEEDS = _QUERIES["probe_read_of_feeds"]
_WRITE = _QUERIES["probe_write"]
_WRITE_FEEDS = _QUERIES["probe_write_of_feeds"]
_UNDO_WRITE_FEEDS = _QUERIES["undo_probe_write_of_feeds"]
_LOG = logging.getLogger(__name__)

LASTING_MS = 60_000
MAX_ATTEMPTS = 5


class StoreWatch:
    """Watches the database, and sends one notice when it has failed for a minute.

    `failures` returns how many requests have failed because of the database so far: a full disk can still be read.
    """

    def __init__(
        self, database: Database, clock: Clock, webhook: WebhookSender, *, failures: Callable[[], int] = lambda: 0
    ) -> None:
        self._database, self._clock, self._webhook, self._failures = database, clock, webhook, failures
        self._seen_failures = failures()
        self._outage: _Outage | None = None

    async def look(self) -> None:
        """Use the database, and tell the operator if it has not worked for a minute; a chore."""
        if await self._works():
            self._outage = None
            return
        now_ms = self._clock.monotonic_ns() // 1_000_000
        if self._outage is None:
            self._outage = _Outage(now_ms, self._clock.now_ms())
        if now_ms - self._outage.began_ms >= LASTING_MS and self._outage.attempts_left:
            await self._tell(self._outage)

    async def _works(self) -> bool:
        """Return whether the database, or each of two, can be read; and written, if anything has failed."""
        failures = self._failures()
        is_suspect = self._outage is not None or failures != self._seen_failures
        self._seen_failures = failures
        feeds, now_ms = feeds_of(self._database), self._clock.now_ms()
        try:
            await self._database.one(_READ)
            if feeds is not self._database:
                await feeds.one(_READ_FEEDS)
            if is_suspect:
                await self._database.write_one(_WRITE, now_ms=now_ms)
            if is_suspect and feeds is not self._database:
                await feeds.write(partial(_write_to_feeds, now_ms), feed_id=ALL_FEEDS)
        except StoreUnavailable:
            return False
        return True

    async def _tell(self, outage: "_Outage") -> None:
        outage.attempts_left -= 1
        now_ms = self._clock.now_ms()
        body = body_text(STORE_UNAVAILABLE, now_ms, {"since": rfc3339.format_ms(outage.since_ms)})
        outcome = await self._webhook.post(outage.notice_id, body, now_ms=now_ms)
        if outcome.is_delivered:
            outage.attempts_left = 0
        else:
            _LOG.warning("A notice was not delivered", extra={"fields": {"via": "webhook", "why": outcome.error}})


async def _write_to_feeds(now_ms: int, transaction: Transaction) -> None:
    """Write a row and delete it again, so that nobody ever sees it."""
    await transaction.run(_WRITE_FEEDS, feed_id=ALL_FEEDS, now_ms=now_ms)
    await transaction.run(_UNDO_WRITE_FEEDS, feed_id=ALL_FEEDS)


class _Outage:
    """An outage, by the clock that never jumps and by wall time."""

    def __init__(self, began_ms: int, since_ms: int) -> None:
        self.began_ms, self.since_ms = began_ms, since_ms
        self.notice_id = ids.new_id(ids.NOTICE_ID)
        self.attempts_left = MAX_ATTEMPTS
