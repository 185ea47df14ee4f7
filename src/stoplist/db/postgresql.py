"""PostgreSQL 15 and newer through asyncpg, directly or through a pooler in transaction mode.

No session settings are used: a transaction sends its SET LOCAL with BEGIN. Units with a queue key (a feed) use a pool
of their own and wait for one another here: at most one waits for the feed's lock in the database, and batches cannot
exhaust the connections that token requests need.
"""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar

import asyncpg

from stoplist.db import HEAVY_ROWS, SLICE_ROWS, Counts, Row, SchemaChange, Unit, feed_breaker, ignore_feed
from stoplist.db.feed_breaker import FeedBreaker
from stoplist.db.feed_connections import FeedConnections
from stoplist.db.feed_queues import FeedQueues, Job
from stoplist.db.host_selection import Connector, UnsuitableServer, failure_reason
from stoplist.db.pools import BoundedSemaphore, Connections, end, finish
from stoplist.db.postgresql_errors import DRIVER_ERRORS, Phase, is_deadline, is_retryable, translated_errors
from stoplist.db.postgresql_transactions import (
    FOR_MIGRATION,
    MIGRATION_TIMEOUT_S,
    PostgresqlSchemaChange,
    PostgresqlTransaction,
    arguments,
    open_transaction,
)
from stoplist.db.query import Query, load_queries
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.slicing import yield_to_loop

P = ParamSpec("P")
T = TypeVar("T")

MAX_ATTEMPTS = 5

_QUERIES = load_queries(__package__)
_PROBE_ALL_FEEDS = _QUERIES["probe_all_feeds"]
_PROBE_FEED = _QUERIES["probe_feed"]
_PROBE_LOCK = _QUERIES["probe_lock"]
SCHEMA_LOCK = 0x53544F50  # "STOP": the advisory lock of migrations
_CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS ms, pg_is_in_recovery() AS is_standby"


def _retried_after_deadlock(attempt: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Retry `attempt` if a concurrent transaction rolled it back. Reads too: a migration's locks can undo them."""

    @functools.wraps(attempt)
    async def retrying(*args: P.args, **named: P.kwargs) -> T:
        for _ in range(MAX_ATTEMPTS):
            try:
                return await attempt(*args, **named)
            except asyncpg.PostgresError as error:
                if not is_retryable(error):
                    raise
        raise StoreUnavailable("The database is too busy with changes to the same rows: try again shortly.")

    return retrying


class Postgresql:
    """A PostgreSQL database, opened by `open`."""

    kind = "postgresql"
    feeds_are_apart = False

    def __init__(self, connector: Connector, small_pool: Connections, feed_pool: Connections) -> None:
        self._connector, self._small_pool, self._feed_pool = connector, small_pool, feed_pool
        self.counts = Counts()
        self._reads_breaker = FeedBreaker("reads", self._answers, self.counts)
        self._writes_breaker = FeedBreaker("writes", self._is_lockable, self.counts)
        # Heavy units and reads get half of the feed pool, so that small units of other feeds go on.
        heavy = BoundedSemaphore(_part(feed_pool.size, 2))
        self._queues = FeedQueues(self._commit_together, heavy)
        self._feed_reads = FeedConnections(
            small_pool,
            BoundedSemaphore(_part(small_pool.size, 2)),
            feed_capacity=_part(small_pool.size, 4),
            breaker=self._reads_breaker,
        )
        self._heavy_reads = FeedConnections(
            feed_pool, heavy, feed_capacity=_part(feed_pool.size, 4), breaker=self._reads_breaker
        )
        self.on_feed_written: Callable[[int], None] = ignore_feed
        self._unfinished: set[asyncio.Future[Any]] = set()

    @classmethod
    async def open(
        cls, url: str, *, pool_size: int, prepared: bool, setting: str = "STOPLIST_DATABASE_URL"
    ) -> "Postgresql":
        """Connect. Raise SettingsError if the server is unreachable, too old, a standby, or does not commit durably.

        `setting` is the one that the error names.
        """
        feed_pool_size = max(1, pool_size // 2)
        connector = Connector(url, prepared=prepared, setting=setting)
        small_pool = Connections(connector, max(1, pool_size - feed_pool_size), prepared=prepared)
        feed_pool = Connections(connector, feed_pool_size, prepared=prepared)
        try:
            await small_pool.connect_once()
        except UnsuitableServer as error:
            raise SettingsError(str(error)) from None
        except (
            OSError,
            TimeoutError,
            ValueError,
            OverflowError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
        ) as error:
            raise SettingsError(
                f"PostgreSQL cannot be reached with {setting}: {failure_reason(error)}. "
                "Check that the server runs, and the host, port, database, user and password in that URL."
            ) from None
        return cls(connector, small_pool, feed_pool)

    @_retried_after_deadlock
    async def one(self, query: Query, **values: Any) -> Row | None:
        with translated_errors():
            async with self._connection_for(query, values.get("feed_id")) as connection:
                return await connection.fetchrow(query.postgresql, *arguments(query, values))

    @_retried_after_deadlock
    async def rows(self, query: Query, *values: Any) -> list[Row]:
        with translated_errors():
            async with self._connection_for(query, _feed_by_position(query, values)) as connection:
                return await connection.fetch(query.postgresql, *values)  # type: ignore[no-any-return]

    @_retried_after_deadlock
    async def one_large(self, query: Query, **values: Any) -> Row | None:
        with translated_errors():
            async with self._heavy_reads.acquire(values.get("feed_id")) as connection:
                return await connection.fetchrow(query.postgresql, *arguments(query, values))

    @_retried_after_deadlock
    async def all(self, query: Query, **values: Any) -> list[Row]:
        with translated_errors():
            async with self._connection_for(query, values.get("feed_id")) as connection:
                return await connection.fetch(query.postgresql, *arguments(query, values))  # type: ignore[no-any-return]

    async def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        # asyncpg decodes the rows as they arrive from the socket, so reading does not block the loop.
        rows = await self.all(query, **values)
        for at in range(0, len(rows), SLICE_ROWS):
            yield rows[at : at + SLICE_ROWS]
            await yield_to_loop()

    async def write(
        self, unit: Unit[T], *, queue_key: int | None = None, feed_id: int | None = None, rows: int = 1
    ) -> T:
        if queue_key is None:
            return await self._finish_counted(self._write(unit))
        self._writes_breaker.check(queue_key)
        return await self._finish_counted(self._queues.join(queue_key, unit, is_heavy=rows > HEAVY_ROWS))

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        # Sent without BEGIN and COMMIT: one round trip, atomic and durable by itself.
        return await self._finish_counted(self._write_one(query, values))

    async def clock_ms(self) -> int | None:
        with translated_errors():
            async with self._small_pool.acquire() as connection:
                row = await connection.fetchrow(_CLOCK)
        if row["is_standby"]:
            # A pooler may lead to another server than at connection time. New connections are checked again.
            self._connector.invalidate_all()
            raise StoreUnavailable("The database has become a standby: try again shortly.")
        return int(row["ms"])

    @_retried_after_deadlock
    async def under_schema_lock(self, change: Callable[[SchemaChange], Awaitable[T]]) -> T:
        with translated_errors():
            async with self._small_pool.acquire() as connection, open_transaction(connection, **FOR_MIGRATION):
                await connection.execute(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})", timeout=MIGRATION_TIMEOUT_S)
                return await change(PostgresqlSchemaChange(connection))

    async def close(self) -> None:
        # A closing pool refuses waiting callers, so the units finish first.
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await asyncio.gather(self._reads_breaker.close(), self._writes_breaker.close())
        await asyncio.gather(self._small_pool.close(), self._feed_pool.close())

    def _connection_for(self, query: Query, feed_id: int | None) -> AbstractAsyncContextManager[Any]:
        """Return the context of a connection for a read. Reads of feeds have a part of the pool."""
        return self._feed_reads.acquire(feed_id) if query.reads_feeds else self._small_pool.acquire()

    async def _answers(self, feed_id: int | None, patience_s: float) -> bool:
        """Return whether a feed (None: every node) can be read."""
        if feed_id is None:
            return await self._probe(_PROBE_ALL_FEEDS, patience_s=patience_s)
        return await self._probe(_PROBE_FEED, feed_id, patience_s=patience_s)

    async def _is_lockable(self, feed_id: int | None, patience_s: float) -> bool:
        """Return whether a feed can be written."""
        return await self._probe(_PROBE_LOCK, feed_id, patience_s=patience_s)

    async def _probe(self, query: Query, *values: Any, patience_s: float) -> bool:
        """Return whether there is any answer in time, on a connection of its own: an error is an answer, too."""
        try:
            connection = await self._connector(statement_cache_size=0)
        except DRIVER_ERRORS:
            return False
        try:
            await connection.fetchrow(query.postgresql, *values, timeout=feed_breaker.PROBE_TIMEOUT_S)
        except DRIVER_ERRORS as error:
            if isinstance(error, TimeoutError):
                await finish(connection, patience_s)
            return not is_deadline(error)
        finally:
            end(connection)
        return True

    async def _finish_counted(self, work: Awaitable[T]) -> T:
        """Finish `work` even if the caller is cancelled, and count the write."""
        started_ns = time.monotonic_ns()
        self.counts.waiting += 1
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        try:
            return await asyncio.shield(task)
        finally:
            self.counts.waiting -= 1
            self.counts.writes += 1
            self.counts.write_wait_ns += time.monotonic_ns() - started_ns

    async def _write_one(self, query: Query, values: dict[str, Any]) -> Row | None:
        with translated_errors(Phase.AUTOCOMMIT):
            row = await self.one(query, **values)
        self.counts.commits += 1
        return row

    @_retried_after_deadlock
    async def _write(self, unit: Unit[T]) -> T:
        with translated_errors():
            async with self._small_pool.acquire() as connection, open_transaction(connection):
                result = await unit(PostgresqlTransaction(connection))
        self.counts.commits += 1
        return result

    async def _commit_together(self, feed_id: int, group: list[Job]) -> None:
        """Run the jobs in one transaction. A failing unit does not affect the others, unless the store itself fails."""

        @_retried_after_deadlock
        async def attempt() -> None:
            self._writes_breaker.check(feed_id)  # it may have begun to hang while these waited
            with translated_errors():
                try:
                    async with self._feed_pool.acquire(is_of_feed=True) as connection, open_transaction(connection):
                        transaction = PostgresqlTransaction(connection)
                        for job in group:
                            await job.run(transaction, is_alone=len(group) == 1)
                except (StoreUnavailable, *DRIVER_ERRORS) as failure:
                    if is_deadline(failure):
                        self._writes_breaker.trip(feed_id)
                    raise

        try:
            await attempt()
        except Exception as failure:
            for job in group:
                job.refuse(failure)
        else:
            self.counts.commits += 1
            for job in group:
                job.deliver()
            self.on_feed_written(feed_id)


def _feed_by_position(query: Query, values: tuple[Any, ...]) -> int | None:
    return dict(zip(query.parameters, values, strict=True)).get("feed_id") if query.reads_feeds else None


def _part(connections: int, divisor: int) -> int:
    return max(1, connections // divisor)
