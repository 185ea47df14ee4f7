"""PostgreSQL 15 and newer through asyncpg.

Nothing is set for a session: the pool hands connections on without a reset, which saves a round trip a statement.
Units of a line (a feed) have a pool of their own and wait for one another here: one connection at most waits for the
feed's lock, and what batches take can never be missing where a token is asked for.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import asyncpg

from stoplist.db import HEAVY_ROWS, SLICE_ROWS, Counts, Row, SchemaChange, Unit
from stoplist.db.query import Query
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.pace import let_others_run

T = TypeVar("T")

MINIMUM_VERSION = 15
ACQUIRE_TIMEOUT_S = 5.0
LOCK_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 10.0
MIGRATION_TIMEOUT_S = 3600.0
TRIES = 5
GROUP_UNITS = 64
WAITING_UNITS = 1_000

_SCHEMA_LOCK = 0x53544F50  # "STOP": the advisory lock that migrations take

# SQLSTATE classes that are the store's trouble: connection, resources, operator intervention, system error, lock not
# available, read-only (a standby), login or database gone (being restored).
_STORE_STATES = ("08", "53", "57", "58", "25006", "55P03", "28", "3D")
_AGAIN_STATES = ("40001", "40P01")


class Postgresql:
    """A pool of connections, opened by `open`."""

    kind = "postgresql"

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", lines_pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool, self._lines_pool = pool, lines_pool
        # Of the connections for lines, half are kept free of heavy units, so that small ones of other feeds go on.
        self._heavy = asyncio.Semaphore(max(1, lines_pool.get_max_size() // 2))
        self._lines: dict[int, _Line] = {}
        self.counts = Counts()
        self._unfinished: set[asyncio.Future[Any]] = set()

    @classmethod
    async def open(cls, url: str, *, pool_size: int, prepared: bool) -> "Postgresql":
        """Connect, and refuse a server that is too old or that answers before a commit is durable."""
        for_lines = max(1, pool_size // 2)
        try:
            pool = await _pool(url, max(1, pool_size - for_lines), prepared=prepared)
            lines_pool = await _pool(url, for_lines, prepared=prepared, least=0)
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
        return cls(pool, lines_pool)

    async def one(self, query: Query, **values: Any) -> Row | None:
        with _translated():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                return await connection.fetchrow(query.postgresql, *_in_order(query, values))

    async def one_heavy(self, query: Query, **values: Any) -> Row | None:
        with _translated():
            async with self._heavy, self._lines_pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                return await connection.fetchrow(query.postgresql, *_in_order(query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        with _translated():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                return await connection.fetch(query.postgresql, *_in_order(query, values))

    async def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        # The rows are decoded as they arrive from the socket, which is in slices by itself.
        rows = await self.all(query, **values)
        for at in range(0, len(rows), SLICE_ROWS):
            yield rows[at : at + SLICE_ROWS]
            await let_others_run()

    async def write(self, unit: Unit[T], *, line: int | None = None, rows: int = 1) -> T:
        if line is None:
            return await self._counted(self._write(unit))
        return await self._counted(self._in_line(line, unit, is_heavy=rows > HEAVY_ROWS))

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
        await self._lines_pool.close()

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

    async def _write(self, unit: Unit[T]) -> T:
        async def attempt() -> T:
            with _translated():
                async with (
                    self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection,
                    connection.transaction(isolation="read_committed"),
                ):
                    return await unit(_Transaction(connection))

        return await self._again_after_deadlock(attempt)

    async def _in_line(self, number: int, unit: Unit[T], *, is_heavy: bool) -> T:
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = _Line()
            line.working = asyncio.create_task(self._work_off(number, line))
        return await line.join(unit, is_heavy=is_heavy)  # type: ignore[no-any-return]

    async def _work_off(self, number: int, line: "_Line") -> None:
        """All that waits in the line, in turn: the small units together, then one heavy unit."""
        while line.small or line.heavy:
            if line.small:
                await self._commit_together(line.next_small())
            if line.heavy:
                await self._room_for_heavy(line)
                try:
                    await self._commit_together([line.heavy.popleft()])
                finally:
                    self._heavy.release()
        del self._lines[number]

    async def _room_for_heavy(self, line: "_Line") -> None:
        """There is room for a heavy unit; the small ones that come while it waits for that go ahead of it."""
        if not self._heavy.locked():
            await self._heavy.acquire()
            return
        room = asyncio.ensure_future(self._heavy.acquire())
        while not room.done():
            if line.small:
                await self._commit_together(line.next_small())
            else:
                await line.something_comes_before(room)

    async def _commit_together(self, group: "list[_Job]") -> None:
        """One transaction for the units of `group`; one that fails harms no other, unless the store itself fails."""

        async def attempt() -> None:
            with _translated():
                async with self._lines_pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection, _begun(connection):
                    transaction = _Transaction(connection)
                    for job in group:
                        await job.run(transaction, is_alone=len(group) == 1)

        try:
            await self._again_after_deadlock(attempt)
        except Exception as failure:
            for job in group:
                job.refuse(failure)
        else:
            for job in group:
                job.deliver()

    async def _again_after_deadlock(self, attempt: Callable[[], Awaitable[T]]) -> T:
        for _ in range(TRIES):
            try:
                result = await attempt()
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _AGAIN_STATES:
                    raise
            else:
                self.counts.commits += 1
                return result
        raise StoreUnavailable("The database is too busy with changes to the same rows: try again shortly.")


class _Line:
    """The units of one feed that wait for one another; it exists while some do."""

    def __init__(self) -> None:
        self.small: deque[_Job] = deque()
        self.heavy: deque[_Job] = deque()
        self.working: asyncio.Task[None] | None = None
        self._comes = asyncio.Event()

    async def join(self, unit: Unit[Any], *, is_heavy: bool) -> Any:
        queue = self.heavy if is_heavy else self.small
        if len(queue) >= WAITING_UNITS:
            raise StoreUnavailable("Too many submissions wait for this feed at the moment: try again shortly.")
        job = _Job(unit, asyncio.get_running_loop().create_future())
        queue.append(job)
        self._comes.set()
        return await job.answer

    async def something_comes_before(self, other: "asyncio.Future[Any]") -> None:
        """A unit has joined the line, or the other has come to its end."""
        self._comes.clear()
        coming = asyncio.ensure_future(self._comes.wait())
        await asyncio.wait({coming, other}, return_when=asyncio.FIRST_COMPLETED)
        coming.cancel()

    def next_small(self) -> "list[_Job]":
        return [self.small.popleft() for _ in range(min(len(self.small), GROUP_UNITS))]


class _Job:
    """A unit that waits in a line, and whoever waits for it."""

    def __init__(self, unit: Unit[Any], answer: "asyncio.Future[Any]") -> None:
        self._unit = unit
        self.answer = answer
        self._result: Any = None
        self._failure: Exception | None = None

    async def run(self, transaction: "_Transaction", *, is_alone: bool) -> None:
        """Run the unit, perhaps once more; among others in a savepoint, where its own failure is kept for its asker."""
        self._result = self._failure = None
        if is_alone:
            self._result = await self._unit(transaction)
            return
        try:
            async with transaction.savepoint():
                self._result = await self._unit(transaction)
        except Exception as failure:
            if _is_of_the_store(failure) or getattr(failure, "sqlstate", None) in _AGAIN_STATES:
                raise
            self._failure = failure

    def deliver(self) -> None:
        """Answer after the commit: also a refusal may rest on what another unit of the group wrote."""
        if self._failure is not None:
            self.refuse(self._failure)
        elif not self.answer.done():
            self.answer.set_result(self._result)

    def refuse(self, failure: Exception) -> None:
        """Answer that nothing was stored."""
        if not self.answer.done():
            self.answer.set_exception(failure)


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
        await let_others_run()

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


async def _pool(url: str, size: int, *, prepared: bool, least: int = 1) -> "asyncpg.Pool[asyncpg.Record]":
    return await asyncpg.create_pool(
        url,
        min_size=least,
        max_size=size,
        init=_check_server,
        reset=_keep,
        command_timeout=STATEMENT_TIMEOUT_S,
        statement_cache_size=256 if prepared else 0,
    )


@contextlib.asynccontextmanager
async def _begun(connection: Any) -> AsyncGenerator[None, None]:
    """A transaction that gives up after 5 s where another process holds the feed; begun in one round trip."""
    await connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S:g}s'")
    try:
        yield
        await connection.execute("COMMIT")
    except BaseException:
        await _roll_back(connection)
        raise


async def _roll_back(connection: Any) -> None:
    """The connection is outside any transaction, or closed: whoever gets it next must not write into this one."""
    try:
        await connection.execute("ROLLBACK")
    except BaseException:
        connection.terminate()


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
        if not _is_of_the_store(error):
            raise  # a defect of ours
        state = _state(error)
        raise StoreUnavailable(
            f"The database cannot serve this now (SQLSTATE {state}): try again shortly.",
            is_uncertain=state.startswith("08"),
        ) from error


def _is_of_the_store(error: Exception) -> bool:
    if isinstance(error, ValueError) or not isinstance(
        error, OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.PostgresError
    ):
        return False
    return _state(error).startswith(_STORE_STATES)


def _state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or "08"
