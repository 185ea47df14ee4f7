"""SQLite through the standard library: one writer that commits waiting units together, and several readers.

Statements run on the event loop, in slices of about a millisecond. Only long C calls go to a thread: COMMIT,
checkpoints, the statements of a heavy unit (each handles a whole batch), and the reads of big batches. Small and heavy
units have separate queues, served in turn: a group of small ones, then one heavy one.
Why not everything runs in a thread: docs/decisions/0004-sqlite-on-the-loop.md.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from stoplist.db import HEAVY_ROWS, SLICE_ROWS, Counts, Row, SchemaChange, Unit
from stoplist.db.query import Query, load_queries
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.slicing import SLICE_NS, yield_to_loop

T = TypeVar("T")

_QUERIES = load_queries(__package__)
_ANY_TABLE = _QUERIES["any_table"]
_HAS_DEPLOYMENT = _QUERIES["has_deployment"]

MINIMUM_VERSION = (3, 38, 0)  # RETURNING (3.35), JSON functions built in (3.38)
MAX_GROUP_UNITS = 256
MAX_WAITING_UNITS = 10_000
LOCK_WAIT_S = 5.0
FILE_CHECK_S = 0.1
CHECKPOINT_CHANGES = 10_000
IDLE_READERS = 4
HEAVY_READS = 2
# A batch into a big feed touches thousands of index pages: 16 MiB takes a third longer, 64 MiB is hardly faster.
WRITER_CACHE_KIB = 32_768
READER_CACHE_KIB = 16_384
SMALL_CACHE_KIB = 2_048

# Primary result codes that mean the store is unavailable, not a defect in our code: busy, locked, out of memory,
# read-only, I/O error, corrupt, full, cannot open, locking protocol, no database.
_STORE_CODES = frozenset((5, 6, 7, 8, 10, 11, 13, 14, 15, 26))
_DAMAGED_CODES = frozenset((8, 11, 26))
_BUSY = 5


class Sqlite:
    """A SQLite database, opened by `open`."""

    kind = "sqlite"

    def __init__(self, path: Path, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path, self._writer, self._reader = path, writer, reader
        self._file = _file_identity(path)
        self._next_file_check_s = 0.0
        self.counts = Counts()
        self._small_jobs: deque[_Job] = deque()
        self._heavy_jobs: deque[_Job] = deque()
        self._work = asyncio.Event()
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-write")
        self._read_threads = ThreadPoolExecutor(HEAVY_READS, thread_name_prefix="sqlite-read")
        self._changes_at_checkpoint = 0
        self._is_closing = False
        self._idle_readers: list[sqlite3.Connection] = []
        self._write_task = asyncio.create_task(self._write_groups())

    @classmethod
    async def open(cls, path: Path, *, create: bool) -> "Sqlite":
        """Open the file. With `create`, create a missing one with mode 0600. Raise SettingsError if this fails."""
        if sqlite3.sqlite_version_info < MINIMUM_VERSION:
            least = ".".join(map(str, MINIMUM_VERSION))
            raise SettingsError(
                f"This Python brings SQLite {sqlite3.sqlite_version}; Stoplist needs {least} or newer. "
                "Use a newer Python or set STOPLIST_DATABASE_URL to a PostgreSQL database."
            )
        try:
            if create:
                _make_private_file(path)
            with _translated_errors():
                database = cls(
                    path, connect(path, cache_kib=WRITER_CACHE_KIB), connect(path, cache_kib=READER_CACHE_KIB)
                )
        except (OSError, StoreUnavailable) as error:
            raise SettingsError(
                f"The database file {path} cannot be opened ({error}): "
                "check that the path is right, its folder exists and is writable, and the disk has free space."
            ) from None
        return database

    async def one(self, query: Query, **values: Any) -> Row | None:
        self._check_file_if_due()
        try:
            return _first_row(self._reader, query, values)
        except sqlite3.Error as error:
            raise _translate(error) from None

    async def one_large(self, query: Query, **values: Any) -> Row | None:
        self._check_file()

        def read() -> Row | None:
            with self._own_reader() as connection:
                return _first_row(connection, query, values)

        with _translated_errors():
            return await asyncio.get_running_loop().run_in_executor(self._read_threads, read)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        self._check_file_if_due()
        rows = self._all_if_small(query, values)
        if rows is None:
            rows = []
            async with contextlib.aclosing(self.slices(query, **values)) as slices:
                async for part in slices:
                    rows += part
        return rows

    async def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        self._check_file()
        with self._own_reader() as connection:
            cursor = connection.cursor()
            try:
                with _translated_errors():
                    cursor.execute(query.sqlite, values)
                while True:
                    with _translated_errors():
                        rows = cursor.fetchmany(SLICE_ROWS)
                    yield rows
                    if len(rows) < SLICE_ROWS:
                        return
                    await yield_to_loop()
            finally:
                cursor.close()

    async def write(self, unit: Unit[T], *, queue_key: int | None = None, rows: int = 1) -> T:
        if rows > HEAVY_ROWS:
            return await self._queue(self._heavy_jobs, unit)  # type: ignore[no-any-return]
        return await self._queue(  # type: ignore[no-any-return]
            self._small_jobs, lambda: _in_savepoint(self._writer, unit)
        )

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        return await self._queue(self._small_jobs, lambda: _first_row(self._writer, query, values))

    async def clock_ms(self) -> int | None:
        return None

    async def under_schema_lock(self, change: Callable[[SchemaChange], Awaitable[T]]) -> T:
        connection = connect(self._path, cache_kib=SMALL_CACHE_KIB)
        try:
            with _translated_errors():
                await self._begin(connection)
                result = await change(_SchemaChange(connection, self._path))
                connection.execute("COMMIT")
                return result
        finally:
            connection.close()  # rolls back what is not committed

    async def close(self) -> None:
        self._is_closing = True
        self._work.set()
        await self._write_task
        self._write_thread.shutdown()
        self._read_threads.shutdown()
        for connection in (self._writer, self._reader, *self._idle_readers):
            connection.close()

    @contextlib.contextmanager
    def _own_reader(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection, in any thread, to a read that outlasts one slice and so needs a snapshot of its own."""
        try:
            connection = self._idle_readers.pop()
        except IndexError:
            with _translated_errors():
                connection = connect(self._path, cache_kib=SMALL_CACHE_KIB)
        try:
            yield connection
        finally:
            if len(self._idle_readers) < IDLE_READERS and not self._is_closing:
                self._idle_readers.append(connection)
            else:
                connection.close()

    def _all_if_small(self, query: Query, values: dict[str, Any]) -> list[Row] | None:
        """Return all rows if they fit in one slice, else None. Halves the time of a read of one or two rows."""
        cursor = self._reader.cursor()
        try:
            rows = cursor.execute(query.sqlite, values).fetchmany(SLICE_ROWS)
        except sqlite3.Error as error:
            raise _translate(error) from None
        finally:
            cursor.close()  # else a statement with more rows would keep its snapshot
        return rows if len(rows) < SLICE_ROWS else None

    async def _queue(self, queue: "deque[_Job]", work: Callable[..., Any]) -> Any:
        if self._is_closing or len(queue) >= MAX_WAITING_UNITS:
            raise StoreUnavailable("Too many writes are waiting for the database: try again shortly.")
        started_ns = time.monotonic_ns()
        job = _Job(work, asyncio.get_running_loop().create_future())
        queue.append(job)
        self._work.set()
        self.counts.waiting += 1
        try:
            return await job.answer
        finally:
            self.counts.waiting -= 1
            self.counts.writes += 1
            self.counts.write_wait_ns += time.monotonic_ns() - started_ns

    async def _write_groups(self) -> None:
        while self._small_jobs or self._heavy_jobs or not self._is_closing:
            await self._work.wait()
            self._work.clear()
            while self._small_jobs or self._heavy_jobs:
                if self._small_jobs:
                    await self._write_group(self._run_small, self._small_jobs)
                if self._heavy_jobs:
                    await self._write_group(self._run_heavy, self._heavy_jobs)

    async def _write_group(self, run: "Callable[[list[_Job]], Awaitable[None]]", queue: "deque[_Job]") -> None:
        """Commit waiting units together. A failing unit does not affect the others, unless the store itself fails."""
        group: list[_Job] = []
        try:
            self._check_file()
            with _translated_errors():
                await self._begin(self._writer)
                await run(group)
                await self._in_thread(self._commit)
        except Exception as failure:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            for job in group or _take_all(queue):
                job.refuse(failure)
            return
        self.counts.commits += 1
        for job in group:
            job.deliver()
        if self._writer.total_changes - self._changes_at_checkpoint >= CHECKPOINT_CHANGES:
            self._changes_at_checkpoint = self._writer.total_changes
            await self._in_thread(self._checkpoint)

    async def _run_heavy(self, group: "list[_Job]") -> None:
        """Run one heavy unit, alone in its transaction."""
        group.append(job := self._heavy_jobs.popleft())
        job.set_result(await job.work(_HeavyTransaction(self._writer, self._in_thread)))

    async def _run_small(self, group: "list[_Job]") -> None:
        pause_ns = time.monotonic_ns() + SLICE_NS
        while self._small_jobs and len(group) < MAX_GROUP_UNITS:
            group.append(job := self._small_jobs.popleft())
            job.execute()
            if time.monotonic_ns() > pause_ns:
                await asyncio.sleep(0)
                pause_ns = time.monotonic_ns() + SLICE_NS

    def _check_file(self) -> None:
        """Raise StoreUnavailable if the file was removed or replaced: writes to the old one would be lost."""
        if _file_identity(self._path) != self._file:
            raise StoreUnavailable(
                "The database file was removed or replaced while the server ran: restart the server."
            )
        self._next_file_check_s = time.monotonic() + FILE_CHECK_S

    def _check_file_if_due(self) -> None:
        """Check the file if FILE_CHECK_S has passed. For reads, many of which cost no more than the check itself."""
        if time.monotonic() >= self._next_file_check_s:
            self._check_file()

    async def _begin(self, connection: sqlite3.Connection) -> None:
        """Execute BEGIN IMMEDIATE, waiting without blocking the loop while another process writes."""
        give_up_s = time.monotonic() + LOCK_WAIT_S
        pause_s = 0.001
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if _primary_code(error) != _BUSY or time.monotonic() > give_up_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._write_thread, work)

    def _commit(self) -> None:
        self._writer.execute("COMMIT")

    def _checkpoint(self) -> None:
        # Between two groups, so that the checkpoint reaches the end of the log, which then restarts. A failure (disk
        # full) loses nothing: the log still holds every page, and the next checkpoint tries again.
        with contextlib.suppress(sqlite3.Error):
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


class _Job:
    """A queued unit and the future of its result."""

    def __init__(self, work: Callable[..., Any], answer: "asyncio.Future[Any]") -> None:
        self.work = work
        self.answer = answer
        self._result: Any = None
        self._failure: Exception | None = None

    def execute(self) -> None:
        """Run the unit. Its own failure is kept for its caller; a failure of the store is raised."""
        try:
            self._result = self.work()
        except sqlite3.Error as error:
            if _primary_code(error) in _STORE_CODES:
                raise
            self._failure = error
        except Exception as error:
            self._failure = error

    def set_result(self, result: Any) -> None:
        """Set the result to deliver after the commit."""
        self._result = result

    def deliver(self) -> None:
        """Deliver the outcome after the commit: even a failure may depend on what others in the group wrote."""
        if self.answer.done():
            return
        if self._failure is None:
            self.answer.set_result(self._result)
        else:
            self.answer.set_exception(self._failure)

    def refuse(self, failure: Exception) -> None:
        """Deliver `failure`: nothing was stored."""
        if not self.answer.done():
            self.answer.set_exception(failure)


class _Transaction:
    """A transaction on the event loop, which never suspends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def one(self, query: Query, **values: Any) -> Row | None:
        return _first_row(self._connection, query, values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return self._connection.execute(query.sqlite, values).fetchall()

    async def run(self, query: Query, **values: Any) -> int:
        return _affected_rows(self._connection, query, values)

    async def pause(self) -> None:
        pass


class _HeavyTransaction:
    """A transaction whose statements run in the writer's thread: each is one long C call for a whole batch."""

    def __init__(
        self, connection: sqlite3.Connection, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._connection, self._in_thread = connection, in_thread

    async def one(self, query: Query, **values: Any) -> Row | None:
        return await self._in_thread(lambda: _first_row(self._connection, query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return await self._in_thread(  # type: ignore[no-any-return]
            lambda: self._connection.execute(query.sqlite, values).fetchall()
        )

    async def run(self, query: Query, **values: Any) -> int:
        return await self._in_thread(  # type: ignore[no-any-return]
            lambda: _affected_rows(self._connection, query, values)
        )

    async def pause(self) -> None:
        await yield_to_loop()


class _SchemaChange(_Transaction):
    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection)
        self._path = path

    async def script(self, text: str) -> None:
        for statement in _statements(text):
            self._connection.execute(statement)

    async def keep_copy(self, name: str) -> str | None:
        # A second connection reads while this one holds the write lock, so the copy has the last committed state.
        copy = self._path.with_name(f"{self._path.name}.{name}")
        copy.unlink(missing_ok=True)
        _make_private_file(copy)
        reader = connect(self._path, cache_kib=SMALL_CACHE_KIB)
        try:
            reader.execute("VACUUM INTO :copy", {"copy": str(copy)})
        finally:
            reader.close()
        return str(copy)


def connect(path: Path, *, cache_kib: int) -> sqlite3.Connection:
    """Open a connection with the settings that all connections share. The file must exist."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=LOCK_WAIT_S,  # while opening; afterwards `_begin` waits on the event loop
        isolation_level=None,
        check_same_thread=False,  # used on the loop and in threads, but never in two at once
        cached_statements=256,
    )
    connection.row_factory = sqlite3.Row
    try:
        if not _is_foreign(connection):
            _switch_to_wal(connection)
        for pragma in (
            "synchronous=FULL",
            "foreign_keys=ON",
            "wal_autocheckpoint=0",
            f"cache_size=-{cache_kib}",
            "temp_store=MEMORY",
            "busy_timeout=0",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode permanently. Raise SQLITE_BUSY if others hold it longer than `LOCK_WAIT_S`.

    Two processes that switch a new file at once would deadlock, so SQLite refuses one of them despite its timeout.
    """
    give_up_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if _primary_code(error) != _BUSY or time.monotonic() >= give_up_s:
                raise
            time.sleep(0.01)  # blocks the loop, but the file is new and nothing is served yet


def _is_foreign(connection: sqlite3.Connection) -> bool:
    """Return whether the file has tables but none of ours: it is refused later and must not be changed."""
    if connection.execute(_HAS_DEPLOYMENT.sqlite).fetchall():
        return False
    return bool(connection.execute(_ANY_TABLE.sqlite).fetchall())


def _first_row(connection: sqlite3.Connection, query: Query, values: dict[str, Any]) -> Row | None:
    # fetchall, not fetchone: a statement that is not read to the end keeps its snapshot.
    rows = connection.execute(query.sqlite, values).fetchall()
    return rows[0] if rows else None


def _affected_rows(connection: sqlite3.Connection, query: Query, values: dict[str, Any]) -> int:
    cursor = connection.execute(query.sqlite, values)
    cursor.fetchall()  # with RETURNING the rows are counted as they are read
    return cursor.rowcount


def _in_savepoint(connection: sqlite3.Connection, unit: Unit[T]) -> T:
    connection.execute("SAVEPOINT unit")
    try:
        result = _drive(unit(_Transaction(connection)))
    except BaseException:
        # A full disk rolls the whole transaction back by itself, and the savepoint is gone with it.
        if connection.in_transaction:
            connection.execute("ROLLBACK TO unit")
            connection.execute("RELEASE unit")
        raise
    connection.execute("RELEASE unit")
    return result


def _drive(work: Awaitable[T]) -> T:
    """Run a unit to its end without suspending. Raise RuntimeError if it awaits anything but its transaction."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    steps.close()
    raise RuntimeError("a unit of work may await nothing but its transaction")


def _take_all(queue: "deque[_Job]") -> "list[_Job]":
    jobs = list(queue)
    queue.clear()
    return jobs


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _make_private_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 1) & 0xFF


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error) from None


def _translate(error: sqlite3.Error) -> Exception:
    """Return StoreUnavailable, without SQLite's text, for a store failure, and any other error unchanged."""
    if _primary_code(error) not in _STORE_CODES:
        return error
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    advice = "the file must be repaired" if _primary_code(error) in _DAMAGED_CODES else "try again shortly"
    return StoreUnavailable(f"The database cannot serve this now ({name}): {advice}.")
