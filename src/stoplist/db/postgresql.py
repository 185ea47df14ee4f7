"""PostgreSQL 15 and newer through asyncpg.

Nothing is set for a session: the pool hands connections on without a reset, which saves a round trip a statement.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import asyncpg

from stoplist.db import Counts, Row, SchemaChange, Unit
from stoplist.db.query import Query
from stoplist.errors import SettingsError, StoreUnavailable

T = TypeVar("T")

MINIMUM_VERSION = 15
ACQUIRE_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 10.0
MIGRATION_TIMEOUT_S = 3600.0
TRIES = 5

_SCHEMA_LOCK = 0x53544F50  # "STOP": the advisory lock that migrations take

# SQLSTATE classes that are the store's trouble: connection, resources, operator intervention, system error, lock not
# available, read-only (a standby), login or database gone (being restored).
_STORE_STATES = ("08", "53", "57", "58", "25006", "55P03", "28", "3D")
_AGAIN_STATES = ("40001", "40P01")


class Postgresql:
    """A pool of connections, opened by `open`."""

    kind = "postgresql"

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool = pool
        self.counts = Counts()
        self._unfinished: set[asyncio.Future[Any]] = set()

    @classmethod
    async def open(cls, url: str, *, pool_size: int, prepared: bool) -> "Postgresql":
        """Connect, and refuse a server that is too old or that answers before a commit is durable."""
        try:
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=pool_size,
                init=_check_server,
                reset=_keep,
                command_timeout=STATEMENT_TIMEOUT_S,
                statement_cache_size=256 if prepared else 0,
            )
        except _Unfit as error:
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
                f"PostgreSQL cannot be reached with STOPLIST_DATABASE_URL: {_reason(error)}. "
                "Check that the server runs, and the host, port, database, user and password in that address."
            ) from None
        return cls(pool)

    async def one(self, query: Query, **values: Any) -> Row | None:
        with _translated():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                return await connection.fetchrow(query.postgresql, *_in_order(query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        with _translated():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                return await connection.fetch(query.postgresql, *_in_order(query, values))

    async def write(self, unit: Unit[T]) -> T:
        return await self._counted(self._write(unit))

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        # Sent without BEGIN and COMMIT: one round trip, atomic and durable by itself.
        return await self._counted(self._again_after_deadlock(lambda: self.one(query, **values)))

    async def clock_ms(self) -> int | None:
        with _translated():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                return int(
                    await connection.fetchval("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")
                )

    async def under_schema_lock(self, change: Callable[[SchemaChange], Awaitable[T]]) -> T:
        with _translated():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection, connection.transaction():
                await connection.execute(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})", timeout=MIGRATION_TIMEOUT_S)
                return await change(_SchemaChange(connection))

    async def close(self) -> None:
        # A pool that is closing refuses those who wait for a connection.
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await self._pool.close()

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
            self.counts.commits += 1
            self.counts.write_wait_ns += time.monotonic_ns() - asked_ns

    async def _write(self, unit: Unit[T]) -> T:
        async def attempt() -> T:
            with _translated():
                async with (
                    self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection,
                    connection.transaction(isolation="read_committed"),
                ):
                    return await unit(_Transaction(connection))

        return await self._again_after_deadlock(attempt)

    async def _again_after_deadlock(self, attempt: Callable[[], Awaitable[T]]) -> T:
        for _ in range(TRIES):
            try:
                return await attempt()
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _AGAIN_STATES:
                    raise
        raise StoreUnavailable("The database is too busy with changes to the same rows: try again shortly.")


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


class _SchemaChange(_Transaction):
    async def script(self, text: str) -> None:
        await self._connection.execute(text, timeout=MIGRATION_TIMEOUT_S)

    async def keep_copy(self, name: str) -> str | None:
        return None  # a copy of a PostgreSQL database is made with its own tools


class _Unfit(asyncpg.InterfaceError):
    """A server that must not be used: refused at the start, and the store's trouble if it becomes so later."""


async def _check_server(connection: Any) -> None:
    """Refuse a connection whose commits would not be durable; asked of each, as a role may set its own default."""
    version = connection.get_server_version().major
    if version < MINIMUM_VERSION:
        raise _Unfit(f"This is PostgreSQL {version}; Stoplist needs {MINIMUM_VERSION} or newer.")
    if await connection.fetchval("SHOW synchronous_commit") == "off":
        raise _Unfit(
            "PostgreSQL has synchronous_commit = off, so a crash could lose an answer already given. "
            "Set it to on for this database and role (ALTER DATABASE … SET synchronous_commit = on)."
        )


async def _keep(connection: Any) -> None:
    """Return a connection to the pool as it is."""


def _reason(error: Exception) -> str:
    # The words about a malformed address quote it, and a password that is not encoded may lie anywhere in it.
    if isinstance(error, ValueError):
        return "the address is malformed (special characters in its password must be percent-encoded)"
    return str(error) or type(error).__name__


def _in_order(query: Query, values: dict[str, Any]) -> list[Any]:
    return [values[name] for name in query.parameters]


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """The store's trouble becomes StoreUnavailable; the server's text, which may hold rows, goes no further."""
    try:
        yield
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError) as error:
        state = getattr(error, "sqlstate", None) or "08"
        if isinstance(error, ValueError) or not state.startswith(_STORE_STATES):
            raise  # a defect of ours
        raise StoreUnavailable(
            f"The database cannot serve this now (SQLSTATE {state}): try again shortly.",
            is_uncertain=state.startswith("08"),
        ) from error
