"""PostgreSQL 15 and newer through asyncpg, directly or through a pooler that lends a server for a transaction only.

Nothing is set for a session: what a transaction needs is set by SET LOCAL, sent with its BEGIN. Units of a line (a
feed) have connections of their own and wait for one another here: one at most waits for the feed's lock, and what
batches take can never be missing where a token is asked for.
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
from stoplist.db.host_selection import Connector, Unfit, reason
from stoplist.db.pools import SETTLE_TIMEOUT_S, STATEMENT_TIMEOUT_S, BoundedSemaphore, Connections, end
from stoplist.db.postgresql_errors import is_worth_another_try, translated
from stoplist.db.query import Query
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.slicing import yield_to_loop

P = ParamSpec("P")
T = TypeVar("T")

LOCK_TIMEOUT_S = 5.0
# Shorter than our own patience, so that the server is the one to say that a statement took too long: then it is certain
# that nothing is stored, and the connection is still good. A statement of the biggest batch takes a tenth of it.
SERVER_STATEMENT_TIMEOUT_S = 0.9 * STATEMENT_TIMEOUT_S
# For a host that freezes in the middle of a unit, which keeps a feed locked. The heaviest unit decides for less than a
# second between two statements; another host that waits for the feed tries twice.
IDLE_TIMEOUT_S = 10.0
MIGRATION_TIMEOUT_S = 3600.0
TRIES = 5

_SCHEMA_LOCK = 0x53544F50  # "STOP": the advisory lock that migrations take
_CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS ms, pg_is_in_recovery() AS is_standby"


def _again_after_deadlock(attempt: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same, made again where what others did undid it: a migration's locks undo reads, too."""

    @functools.wraps(attempt)
    async def attempts(*args: P.args, **named: P.kwargs) -> T:
        for _ in range(TRIES):
            try:
                return await attempt(*args, **named)
            except asyncpg.PostgresError as error:
                if not is_worth_another_try(error):
                    raise
        raise StoreUnavailable("The database is too busy with changes to the same rows: try again shortly.")

    return attempts


class Postgresql:
    """Connections to a server, opened by `open`."""

    kind = "postgresql"

    def __init__(self, connector: Connector, small: Connections, lines: Connections, *, heavy_capacity: int) -> None:
        self._connector, self._small, self._for_lines = connector, small, lines
        self._heavy = BoundedSemaphore(heavy_capacity)
        self._queues = FeedQueues(self._commit_together, self._heavy)
        self.counts = Counts()
        self._unfinished: set[asyncio.Future[Any]] = set()

    @classmethod
    async def open(cls, url: str, *, pool_size: int, prepared: bool) -> "Postgresql":
        """Connect, and refuse a server that is too old, is a standby, or answers before a commit is durable."""
        for_lines = max(1, pool_size // 2)
        connector = Connector(url, prepared=prepared)
        small = await Connections.of(connector, max(1, pool_size - for_lines), prepared=prepared)
        lines = await Connections.of(connector, for_lines, prepared=prepared)
        try:
            await small.make_one()
        except Unfit as error:
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
                f"PostgreSQL cannot be reached with STOPLIST_DATABASE_URL: {reason(error)}. "
                "Check that the server runs, and the host, port, database, user and password in that address."
            ) from None
        # Of the connections for lines, half are kept free of heavy units, so that small ones of other feeds go on.
        return cls(connector, small, lines, heavy_capacity=max(1, for_lines // 2))

    @_again_after_deadlock
    async def one(self, query: Query, **values: Any) -> Row | None:
        with translated():
            async with self._small.one() as connection:
                return await connection.fetchrow(query.postgresql, *_in_order(query, values))

    @_again_after_deadlock
    async def one_large(self, query: Query, **values: Any) -> Row | None:
        with translated():
            async with self._heavy.taken(), self._for_lines.one() as connection:
                return await connection.fetchrow(query.postgresql, *_in_order(query, values))

    @_again_after_deadlock
    async def all(self, query: Query, **values: Any) -> list[Row]:
        with translated():
            async with self._small.one() as connection:
                return await connection.fetch(query.postgresql, *_in_order(query, values))  # type: ignore[no-any-return]

    async def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        # The rows are decoded as they arrive from the socket, which is in slices by itself.
        rows = await self.all(query, **values)
        for at in range(0, len(rows), SLICE_ROWS):
            yield rows[at : at + SLICE_ROWS]
            await yield_to_loop()

    async def write(self, unit: Unit[T], *, queue_key: int | None = None, rows: int = 1) -> T:
        if queue_key is None:
            return await self._counted(self._write(unit))
        return await self._counted(self._queues.join(queue_key, unit, is_heavy=rows > HEAVY_ROWS))

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        # Sent without BEGIN and COMMIT: one round trip, atomic and durable by itself.
        return await self._counted(self._one_written(query, values))

    async def clock_ms(self) -> int | None:
        with translated():
            async with self._small.one() as connection:
                row = await connection.fetchrow(_CLOCK)
        if row["is_standby"]:
            # A pooler may lead to another server than when we connected. Connections that are made anew ask again.
            self._connector.give_up_all()
            raise StoreUnavailable("The database has become a standby: try again shortly.")
        return int(row["ms"])

    @_again_after_deadlock
    async def under_schema_lock(self, change: Callable[[SchemaChange], Awaitable[T]]) -> T:
        with translated():
            async with self._small.one() as connection, _begun(connection, **_FOR_MIGRATION):
                await connection.execute(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})", timeout=MIGRATION_TIMEOUT_S)
                return await change(_SchemaChange(connection))

    async def close(self) -> None:
        # A pool that is closing refuses those who wait for a connection.
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await asyncio.gather(self._small.close(), self._for_lines.close())

    async def _counted(self, work: Awaitable[T]) -> T:
        """Finish `work` even if whoever asked hangs up meanwhile."""
        asked_ns = time.monotonic_ns()
        self.counts.waiting += 1
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        try:
            return await asyncio.shield(task)
        finally:
            self.counts.waiting -= 1
            self.counts.writes += 1
            self.counts.write_wait_ns += time.monotonic_ns() - asked_ns

    async def _one_written(self, query: Query, values: dict[str, Any]) -> Row | None:
        row = await self.one(query, **values)
        self.counts.commits += 1
        return row

    @_again_after_deadlock
    async def _write(self, unit: Unit[T]) -> T:
        with translated():
            async with self._small.one() as connection, _begun(connection):
                result = await unit(_Transaction(connection))
        self.counts.commits += 1
        return result

    async def _commit_together(self, group: list[Job]) -> None:
        """One transaction for the units of `group`; one that fails harms no other, unless the store itself fails."""

        @_again_after_deadlock
        async def attempt() -> None:
            with translated():
                async with self._for_lines.one() as connection, _begun(connection):
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
        return await self._connection.fetchrow(query.postgresql, *_in_order(query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return await self._connection.fetch(query.postgresql, *_in_order(query, values))  # type: ignore[no-any-return]

    async def run(self, query: Query, **values: Any) -> int:
        status: str = await self._connection.execute(query.postgresql, *_in_order(query, values))
        return int(status.rsplit(" ", 1)[-1])

    async def pause(self) -> None:
        await yield_to_loop()

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None, None]:
        """What is done in it is undone when it fails, and the transaction goes on."""
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
        return None  # a copy of a PostgreSQL database is made with its own tools


_FOR_MIGRATION = {"lock_s": MIGRATION_TIMEOUT_S, "statement_s": MIGRATION_TIMEOUT_S, "idle_s": MIGRATION_TIMEOUT_S}


@contextlib.asynccontextmanager
async def _begun(connection: Any, **timeouts: float) -> AsyncGenerator[None, None]:
    """A transaction that the server itself ends where it waits too long, for a lock, a statement or us.

    SET LOCAL ends with the transaction, so that a pooler hands nothing of it to the next client.
    """
    try:
        await connection.execute(_begin(**timeouts))
        yield
        if await _committed(connection) != "COMMIT":
            raise RuntimeError("a unit of work went on after a statement of its had failed, so nothing is stored")
    except BaseException:
        await _roll_back(connection)
        raise


async def _committed(connection: Any) -> str:
    """What the server answers to COMMIT.

    It is never told to stop: one that waits for its standby would give up that wait and show rows that the standby
    may never have, and whoever then sends them again would be told that they are there. The line is cut instead; the
    server goes on waiting, shows nothing, and keeps the feed locked.
    """
    asked = asyncio.ensure_future(connection.execute("COMMIT", timeout=MIGRATION_TIMEOUT_S))
    done, _ = await asyncio.wait({asked}, timeout=STATEMENT_TIMEOUT_S)
    if not done:
        end(connection)
        await asyncio.wait({asked})
        asked.exception()
        raise ConnectionAbortedError("no answer to COMMIT in time")
    return str(asked.result())


def _begin(lock_s: float | None = None, statement_s: float | None = None, idle_s: float | None = None) -> str:
    """BEGIN and its timeouts, in one round trip."""
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED; "
        f"SET LOCAL lock_timeout = {_ms(lock_s or LOCK_TIMEOUT_S)}; "
        f"SET LOCAL statement_timeout = {_ms(statement_s or SERVER_STATEMENT_TIMEOUT_S)}; "
        f"SET LOCAL idle_in_transaction_session_timeout = {_ms(idle_s or IDLE_TIMEOUT_S)}"
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


async def _roll_back(connection: Any) -> None:
    """The connection is outside any transaction, or closed: whoever gets it next must not write into this one."""
    try:
        await connection.execute("ROLLBACK", timeout=SETTLE_TIMEOUT_S)
    except BaseException:
        end(connection)


def _in_order(query: Query, values: dict[str, Any]) -> list[Any]:
    return [values[name] for name in query.parameters]
