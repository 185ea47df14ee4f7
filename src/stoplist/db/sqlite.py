"""SQLite through the standard library: one writer that commits waiting units together, and several readers.

Statements run on the event loop, in slices of about a millisecond. Only long C calls go to a thread: COMMIT,
checkpoints, the statements of a heavy unit (each handles a whole batch), and the reads of big batches. Small and heavy
units have separate queues, served in turn: a group of small ones, then one heavy one.
Why not everything runs in a thread: docs/decisions/0004-sqlite-on-the-loop.md.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from stoplist.db import HEAVY_ROWS, SLICE_ROWS, Counts, Row, SchemaChange, Unit, ignore_feed
from stoplist.db.query import Query
from stoplist.db.sqlite_connection import (
    BUSY,
    LOCK_WAIT_S,
    MINIMUM_VERSION,
    READER_CACHE_KIB,
    SMALL_CACHE_KIB,
    WRITER_CACHE_KIB,
    connect,
    make_private_file,
    primary_code,
    translate_error,
    translated_errors,
)
from stoplist.db.sqlite_readers import FileWatch, SqliteReaders
from stoplist.db.sqlite_snapshot import TurnSnapshot
from stoplist.db.sqlite_transactions import (
    HeavyTransaction,
    SqliteJob,
    SqliteSchemaChange,
    first_row,
    in_savepoint,
    take_all,
)
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.slicing import SLICE_NS, yield_to_loop

T = TypeVar("T")

MAX_GROUP_UNITS = 256
MAX_WAITING_UNITS = 10_000
CHECKPOINT_CHANGES = 10_000
HEAVY_READS = 2


class Sqlite:
    """A SQLite database, opened by `open`."""

    kind = "sqlite"
    feeds_are_apart = False

    def __init__(self, path: Path, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path, self._writer, self._reader = path, writer, reader
        self._snapshot = TurnSnapshot(reader)
        self._tuples = reader.cursor()
        self._tuples.row_factory = None
        self._readers, self._watch = SqliteReaders(path), FileWatch(path)
        self.counts = Counts()
        self.on_feed_written: Callable[[int], None] = ignore_feed
        self._small_jobs: deque[SqliteJob] = deque()
        self._heavy_jobs: deque[SqliteJob] = deque()
        self._work = asyncio.Event()
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-write")
        self._read_threads = ThreadPoolExecutor(HEAVY_READS, thread_name_prefix="sqlite-read")
        self._changes_at_checkpoint = 0
        self._is_closing = False
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
                make_private_file(path)
            with translated_errors(is_statement=False):
                database = cls(
                    path, connect(path, cache_kib=WRITER_CACHE_KIB), connect(path, cache_kib=READER_CACHE_KIB)
                )
        except OSError as error:
            raise SettingsError(
                f"The database file {path} cannot be opened ({error.strerror}): "
                "check that the path is right, its folder exists and is writable, and the disk has free space."
            ) from None
        except StoreUnavailable as error:
            raise SettingsError(f"The database file {path} cannot be opened. {error.text}") from None
        return database

    async def one(self, query: Query, **values: Any) -> Row | None:
        self._watch.check_if_due()
        try:
            return first_row(self._reader, query, values)
        except sqlite3.Error as error:
            raise translate_error(error) from None

    async def rows(self, query: Query, *values: Any) -> list[tuple[Any, ...]]:
        self._watch.check_if_due()
        try:
            self._snapshot.begin()
            return self._tuples.execute(query.sqlite_by_position, values).fetchall()
        except sqlite3.Error as error:
            raise translate_error(error) from None

    async def one_large(self, query: Query, **values: Any) -> Row | None:
        self._watch.check()

        def read() -> Row | None:
            with self._readers.lend() as connection:
                return first_row(connection, query, values)

        with translated_errors():
            return await asyncio.get_running_loop().run_in_executor(self._read_threads, read)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        self._watch.check_if_due()
        rows = self._all_if_small(query, values)
        if rows is None:
            rows = []
            async with contextlib.aclosing(self.slices(query, **values)) as slices:
                async for part in slices:
                    rows += part
        return rows

    async def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        self._watch.check()
        with self._readers.lend() as connection:
            cursor = connection.cursor()
            try:
                with translated_errors():
                    cursor.execute(query.sqlite, values)
                while True:
                    with translated_errors():
                        rows = cursor.fetchmany(SLICE_ROWS)
                    yield rows
                    if len(rows) < SLICE_ROWS:
                        return
                    await yield_to_loop()
            finally:
                cursor.close()

    async def write(
        self, unit: Unit[T], *, queue_key: int | None = None, feed_id: int | None = None, rows: int = 1
    ) -> T:
        if rows > HEAVY_ROWS:
            return await self._queue(self._heavy_jobs, unit, queue_key)  # type: ignore[no-any-return]
        return await self._queue(  # type: ignore[no-any-return]
            self._small_jobs, lambda: in_savepoint(self._writer, unit), queue_key
        )

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        return await self._queue(self._small_jobs, lambda: first_row(self._writer, query, values))

    async def clock_ms(self) -> int | None:
        return None

    async def under_schema_lock(self, change: Callable[[SchemaChange], Awaitable[T]]) -> T:
        with translated_errors(is_statement=False):
            connection = connect(self._path, cache_kib=SMALL_CACHE_KIB)
        try:
            with translated_errors(is_statement=False):
                await self._begin(connection)
            with translated_errors():
                result = await change(SqliteSchemaChange(connection, self._path))
            with translated_errors(is_statement=False):
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
        self._snapshot.end()
        self._readers.close()
        for connection in (self._writer, self._reader):
            connection.close()

    def _all_if_small(self, query: Query, values: dict[str, Any]) -> list[Row] | None:
        """Return all rows if they fit in one slice, else None. Halves the time of a read of one or two rows."""
        cursor = self._reader.cursor()
        try:
            rows = cursor.execute(query.sqlite, values).fetchmany(SLICE_ROWS)
        except sqlite3.Error as error:
            raise translate_error(error) from None
        finally:
            cursor.close()  # else a statement with more rows would keep its snapshot
        return rows if len(rows) < SLICE_ROWS else None

    async def _queue(self, queue: "deque[SqliteJob]", work: Callable[..., Any], feed_id: int | None = None) -> Any:
        if self._is_closing or len(queue) >= MAX_WAITING_UNITS:
            raise StoreUnavailable("Too many writes are waiting for the database: try again shortly.")
        started_ns = time.monotonic_ns()
        job = SqliteJob(work, asyncio.get_running_loop().create_future(), feed_id)
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

    async def _write_group(
        self, run: "Callable[[list[SqliteJob]], Awaitable[None]]", queue: "deque[SqliteJob]"
    ) -> None:
        """Commit waiting units together. A failing unit does not affect the others, unless the store itself fails."""
        group: list[SqliteJob] = []
        try:
            self._watch.check()
            with translated_errors(is_statement=False):
                await self._begin(self._writer)
            with translated_errors():
                await run(group)
            with translated_errors(is_statement=False):
                await self._in_thread(self._commit)
        except Exception as failure:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            for job in group or take_all(queue):
                job.refuse(failure)
            return
        self.counts.commits += 1
        for job in group:
            job.deliver()
            if job.feed_id is not None:
                self.on_feed_written(job.feed_id)
        if self._writer.total_changes - self._changes_at_checkpoint >= CHECKPOINT_CHANGES:
            self._changes_at_checkpoint = self._writer.total_changes
            await self._in_thread(self._checkpoint)

    async def _run_heavy(self, group: "list[SqliteJob]") -> None:
        """Run one heavy unit, alone in its transaction."""
        group.append(job := self._heavy_jobs.popleft())
        job.set_result(await job.work(HeavyTransaction(self._writer, self._in_thread)))

    async def _run_small(self, group: "list[SqliteJob]") -> None:
        pause_ns = time.monotonic_ns() + SLICE_NS
        while self._small_jobs and len(group) < MAX_GROUP_UNITS:
            group.append(job := self._small_jobs.popleft())
            job.execute()
            if time.monotonic_ns() > pause_ns:
                await asyncio.sleep(0)
                pause_ns = time.monotonic_ns() + SLICE_NS

    async def _begin(self, connection: sqlite3.Connection) -> None:
        """Execute BEGIN IMMEDIATE, waiting without blocking the loop while another process writes."""
        give_up_s = time.monotonic() + LOCK_WAIT_S
        pause_s = 0.001
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != BUSY or time.monotonic() > give_up_s:
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
