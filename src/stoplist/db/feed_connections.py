"""Lends connections for reads of feeds: a part of a pool for all of them, and a part of that for each feed.

So the readers of a feed that hangs leave connections to token requests and to other feeds. Reasons and figures:
docs/decisions/0018-hanging-feeds.md.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from stoplist.db import pools
from stoplist.db.feed_breaker import FeedBreaker
from stoplist.db.pools import BoundedSemaphore, Connections
from stoplist.db.postgresql_errors import Phase, is_deadline, translated_errors

GIVE_WAY_S = 3.0
"""Limits a read while another feed waits for its connection: three times the longest read of a healthy server."""


class FeedConnections:
    """A part of a pool, for reads of feeds. Key None stands for statements about many feeds."""

    def __init__(
        self, pool: Connections, capacity: BoundedSemaphore, *, feed_capacity: int, breaker: FeedBreaker
    ) -> None:
        self._pool, self._capacity, self._breaker = pool, capacity, breaker
        self._feed_capacity = feed_capacity
        self._loop = asyncio.get_running_loop()
        self._shares: dict[int | None, _Share] = {}
        self._deadlines: dict[asyncio.Timeout, float] = {}  # of the reads under way, with their start, oldest first

    @contextlib.asynccontextmanager
    async def acquire(self, feed_id: int | None) -> AsyncGenerator[Any, None]:
        """Lend a connection for one read. Raise StoreUnavailable if none is free in time or the feed hangs."""
        self._breaker.check(feed_id)
        share = self._shares.get(feed_id)
        if share is None:
            share = self._shares[feed_id] = _Share(self._feed_capacity)
        share.users += 1
        try:
            await self._enter(share)
            try:
                self._breaker.check(feed_id)  # it may have begun to hang while this read waited
                async with self._pool.acquire(is_of_feed=True) as connection, asyncio.timeout(None) as deadline:
                    self._deadlines[deadline] = self._loop.time()
                    try:
                        yield connection
                    finally:
                        del self._deadlines[deadline]
            finally:
                self._capacity.release()
                share.release()
        except Exception as failure:
            if is_deadline(failure):
                self._breaker.trip(feed_id)
            raise
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[feed_id]

    async def _enter(self, share: "_Share") -> None:
        """Acquire a slot of the feed, and then one of all feeds, so that those who wait for one feed block no other."""
        if not share.is_full and not self._capacity.is_full:
            await share.acquire()
            await self._capacity.acquire()
            return
        with translated_errors(Phase.CONNECT):
            async with asyncio.timeout(pools.ACQUIRE_TIMEOUT_S):
                await share.acquire()
                try:
                    if self._capacity.is_full:
                        self._shorten_oldest()
                    await self._capacity.acquire()
                except BaseException:
                    share.release()
                    raise

    def _shorten_oldest(self) -> None:
        """Give the oldest read GIVE_WAY_S from its start. A frozen node with many feeds would hold all connections."""
        for deadline, started_s in self._deadlines.items():
            if deadline.when() is None:
                deadline.reschedule(started_s + GIVE_WAY_S)
                return


class _Share(BoundedSemaphore):
    """One feed's part of the connections. Removed when nobody uses it or waits for it."""

    users = 0
