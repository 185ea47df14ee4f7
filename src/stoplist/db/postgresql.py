"""PostgreSQL 15 and newer through asyncpg, directly or through a pooler in transaction mode.

No session settings are used: a transaction sends its SET LOCAL with BEGIN. Units with a queue key (a feed) use a pool
of their own and wait for one another here: at most one waits for the feed's lock in the database, and batches cannot
exhaust the connections that token requests need.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import asyncpg

from stoplist.db import HEAVY_ROWS, SLICE_ROWS, Counts, Row, SchemaChange, Unit
from stoplist.db.feed_queues import FeedQueues, Job
from stoplist.db.host_selection import Connector, UnsuitableServer, failure_reason
from stoplist.db.pools import SETTLE_TIMEOUT_S, STATEMENT_TIMEOUT_S, BoundedSemaphore, Connections, end
from stoplist.db.postgresql_errors import is_retryable, translated_errors
from stoplist.db.query import Query
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.slicing import yield_to_loop

P = ParamSpec("P")
T = TypeVar("T")

LOCK_TIMEOUT_S = 5.0
# Shorter than the client timeout, so that the server reports the timeout: then it is certain that nothing is stored,
# and the connection is still good. A statement of the biggest batch takes a tenth of this.
SERVER_STATEMENT_TIMEOUT_S = 0.9 * STATEMENT_TIMEOUT_S
# For a host that freezes in the middle of a unit and keeps a feed locked. The heaviest unit computes for less than a
# second between two statements; another host that waits for the feed tries twice.
IDLE_TIMEOUT_S = 10.0
MIGRATION_TIMEOUT_S = 3600.0
MAX_ATTEMPTS = 5

_SCHEMA_LOCK = 0x53544F50  # "STOP": the advisory lock of migrations
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

    def __init__(
        self, connector: Connector, small_pool: Connections, feed_pool: Connections, *, heavy_capacity: int
    ) -> None:
        self._connector, self._small_pool, self._feed_pool = connector, small_pool, feed_pool
        self._heavy = BoundedSemaphore(heavy_capacity)
        self._queues = FeedQueues(self._commit_together, self._heavy)
        self.counts = Counts()
        self._unfinished: set[asyncio.Future[Any]] = set()

    @classmethod
    async def open(cls, url: str, *, pool_size: int, prepared: bool) -> "Postgresql":
        """Connect. Raise SettingsError if the server is unreachable, too old, a standby, or does not commit durably."""
        feed_pool_size = max(1, pool_size // 2)
        connector = Connector(url, prepared=prepared)
        small_pool = await Connections.create(connector, max(1, pool_size - feed_pool_size), prepared=prepared)
        feed_pool = await Connections.create(connector, feed_pool_size, prepared=prepared)
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
                f"PostgreSQL cannot be reached with STOPLIST_DATABASE_URL: {failure_reason(error)}. "
                "Check that the server runs, and the host, port, database, user and password in that URL."
            ) from None
        # Heavy units get half of the feed pool, so that small units of other feeds go on.
        return cls(connector, small_pool, feed_pool, heavy_capacity=max(1, feed_pool_size // 2))

    @_retried_after_deadlock
    async def one(self, query: Query, **values: Any) -> Row | None:
        with translated_errors():
            async with self._small_pool.acquire() as connection:
                return await connection.fetchrow(query.postgresql, *_arguments(query, values))

    @_retried_after_deadlock
    async def one_large(self, query: Query, **values: Any) -> Row | None:
        with translated_errors():
            async with self._heavy.slot(), self._feed_pool.acquire() as connection:
                return await connection.fetchrow(query.postgresql, *_arguments(query, values))

    @_retried_after_deadlock
    async def all(self, query: Query, **values: Any) -> list[Row]:
        with translated_errors():
            async with self._small_pool.acquire() as connection:
                return await connection.fetch(query.postgresql, *_arguments(query, values))  # type: ignore[no-any-return]

    async def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        # asyncpg decodes the rows as they arrive from the socket, so reading does not block the loop.
        rows = await self.all(query, **values)
        for at in range(0, len(rows), SLICE_ROWS):
            yield rows[at : at + SLICE_ROWS]
            await yield_to_loop()

    async def write(self, unit: Unit[T], *, queue_key: int | None = None, rows: int = 1) -> T:
        if queue_key is None:
            return await self._finish_counted(self._write(unit))
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
            async with self._small_pool.acquire() as connection, _open_transaction(connection, **_FOR_MIGRATION):
                await connection.execute(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})", timeout=MIGRATION_TIMEOUT_S)
                return await change(_SchemaChange(connection))

    async def close(self) -> None:
        # A closing pool refuses waiting callers, so the units finish first.
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await asyncio.gather(self._small_pool.close(), self._feed_pool.close())

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
        row = await self.one(query, **values)
        self.counts.commits += 1
        return row

    @_retried_after_deadlock
    async def _write(self, unit: Unit[T]) -> T:
        with translated_errors():
            async with self._small_pool.acquire() as connection, _open_transaction(connection):
                result = await unit(_Transaction(connection))
        self.counts.commits += 1
        return result

    async def _commit_together(self, group: list[Job]) -> None:
        """Run the jobs in one transaction. A failing unit does not affect the others, unless the store itself fails."""

        @_retried_after_deadlock
        async def attempt() -> None:
            with translated_errors():
                async with self._feed_pool.acquire() as connection, _open_transaction(connection):
                    transaction = _Transaction(connection)
                    for job in group:
                        await job.run(transaction, is_alone=len(group) == 1)

        try:
            await attempt()
        except Exception as failure:
            for job in group:
                job.refuse(failure)
        else:
            self.counts.commits += 1
            for job in group:
                job.deliver()


class _Transaction:
    """A transaction on one connection of the pool."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def one(self, query: Query, **values: Any) -> Row | None:
        return await self._connection.fetchrow(query.postgresql, *_arguments(query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return await self._connection.fetch(query.postgresql, *_arguments(query, values))  # type: ignore[no-any-return]

    async def run(self, query: Query, **values: Any) -> int:
        status: str = await self._connection.execute(query.postgresql, *_arguments(query, values))
        return int(status.rsplit(" ", 1)[-1])

    async def pause(self) -> None:
        await yield_to_loop()

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None, None]:
        """Roll back to this point on an exception in the context; the transaction goes on."""
        await self._connection.execute("SAVEPOINT unit")
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                await self._connection.execute("ROLLBACK TO SAVEPOINT unit; RELEASE SAVEPOINT unit")
            raise
        await self._connection.execute("RELEASE SAVEPOINT unit")


class _SchemaChange(_Transaction):
    async def script(self, text: str) -> None:
        await self._connection.execute(text, timeout=MIGRATION_TIMEOUT_S)

    async def keep_copy(self, name: str) -> str | None:
        return None  # PostgreSQL's own tools make backups


_FOR_MIGRATION = {"lock_s": MIGRATION_TIMEOUT_S, "statement_s": MIGRATION_TIMEOUT_S, "idle_s": MIGRATION_TIMEOUT_S}


@contextlib.asynccontextmanager
async def _open_transaction(connection: Any, **timeouts: float) -> AsyncGenerator[None, None]:
    """Open a transaction that the server ends if it waits too long for a lock, a statement or the client.

    SET LOCAL ends with the transaction, so a pooler passes no setting on to the next client.
    """
    try:
        await connection.execute(_begin(**timeouts))
        yield
        if await _commit(connection) != "COMMIT":
            raise RuntimeError("a unit of work continued after one of its statements failed, so nothing is stored")
    except BaseException:
        await _roll_back(connection)
        raise


async def _commit(connection: Any) -> str:
    """Send COMMIT and return the server's answer.

    COMMIT is never cancelled: a server that waits for its standby would stop waiting and make rows visible that the
    standby may never receive, and a client that resends them would be told they exist. On a timeout the connection is
    closed instead: the server goes on waiting, shows nothing, and keeps the feed locked.
    """
    answer = asyncio.ensure_future(connection.execute("COMMIT", timeout=MIGRATION_TIMEOUT_S))
    done, _ = await asyncio.wait({answer}, timeout=STATEMENT_TIMEOUT_S)
    if not done:
        end(connection)
        await asyncio.wait({answer})
        answer.exception()
        raise ConnectionAbortedError("no answer to COMMIT in time")
    return str(answer.result())


def _begin(lock_s: float | None = None, statement_s: float | None = None, idle_s: float | None = None) -> str:
    """Return BEGIN with its timeouts, sent in one round trip."""
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED; "
        f"SET LOCAL lock_timeout = {_ms(lock_s or LOCK_TIMEOUT_S)}; "
        f"SET LOCAL statement_timeout = {_ms(statement_s or SERVER_STATEMENT_TIMEOUT_S)}; "
        f"SET LOCAL idle_in_transaction_session_timeout = {_ms(idle_s or IDLE_TIMEOUT_S)}"
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


async def _roll_back(connection: Any) -> None:
    """Roll back, or close the connection, so that its next user does not write into this transaction."""
    try:
        await connection.execute("ROLLBACK", timeout=SETTLE_TIMEOUT_S)
    except BaseException:
        end(connection)


def _arguments(query: Query, values: dict[str, Any]) -> list[Any]:
    return [values[name] for name in query.parameters]
