"""Refuses the statements of a feed at once after one of them ran into its deadline, until a probe succeeds.

A node of a distributed database that freezes, or a session that never releases a feed's row, would otherwise let each
statement wait until its own deadline, on a connection that others need. Source: docs/interface.md section D1, Sharding.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from stoplist.db import Counts
from stoplist.errors import StoreUnavailable

PROBE_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 1.0
MAX_PROBES = 2
# Seen on Citus: while a worker is frozen, its coordinator does not end a cancelled statement, and a connection given
# up keeps a server process there. So only the first probe of a feed gives its connection up at once.
PROBE_PATIENCE_S = 300.0

_LOG = logging.getLogger(__name__)


Probe = Callable[[int | None, float], Awaitable[bool]]
"""Returns whether a feed answers within PROBE_TIMEOUT_S; if not, waits for its statement to end, as long as given."""


class FeedBreaker:
    """Knows the feeds whose statements hang. Key None stands for statements about many feeds."""

    def __init__(self, name: str, probe: Probe, counts: Counts) -> None:
        """`name` says in the log what is refused; the feeds that hang are added to `counts`."""
        self._name, self._probe, self._counts = name, probe, counts
        # Apart, so that a feed that only was slow does not wait for those on a frozen node.
        self._first_probes, self._later_probes = asyncio.Semaphore(MAX_PROBES), asyncio.Semaphore(MAX_PROBES)
        self._recoveries: dict[int | None, asyncio.Task[None]] = {}

    def check(self, feed_id: int | None) -> None:
        """Raise StoreUnavailable if the feed's statements hang. Nothing has been sent then."""
        if feed_id in self._recoveries:
            raise StoreUnavailable(
                "The database did not answer for this feed in time. No other request is passed to it until it answers "
                "again: try again shortly."
            )

    def trip(self, feed_id: int | None) -> None:
        """Refuse the feed's statements from now on, and probe the feed once a second until it answers."""
        if feed_id not in self._recoveries:
            self._counts.hanging_feeds += 1
            self._recoveries[feed_id] = asyncio.create_task(self._recover(feed_id))

    async def close(self) -> None:
        """End the probes."""
        recoveries = list(self._recoveries.values())
        for recovery in recoveries:
            recovery.cancel()
        await asyncio.gather(*recoveries, return_exceptions=True)

    async def _recover(self, feed_id: int | None) -> None:
        fields = {"feed_id": feed_id, "refused": self._name}
        _LOG.warning("A feed's statements run into their deadline", extra={"fields": fields})
        try:
            await asyncio.sleep(PROBE_INTERVAL_S)
            async with self._first_probes:
                is_recovered = await self._probe(feed_id, 0.0)
            while not is_recovered:
                await asyncio.sleep(PROBE_INTERVAL_S)
                async with self._later_probes:
                    is_recovered = await self._probe(feed_id, PROBE_PATIENCE_S)
        finally:
            del self._recoveries[feed_id]
            self._counts.hanging_feeds -= 1
        _LOG.info("A feed answers again", extra={"fields": fields})
