"""Transactions on SQLite, and queued units of work whose results are delivered after the commit."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from stoplist.db import Row, Unit
from stoplist.db.query import Query, statements
from stoplist.db.sqlite_connection import (
    SMALL_CACHE_KIB,
    STORE_CODES,
    connect,
    make_private_file,
    primary_code,
)
from stoplist.slicing import yield_to_loop

T = TypeVar("T")


class SqliteJob:
    """A queued unit and the future of its result."""

    def __init__(self, work: Callable[..., Any], answer: "asyncio.Future[Any]", feed_id: int | None) -> None:
        self.work = work
        self.answer = answer
        self.feed_id = feed_id
        self._result: Any = None
        self._failure: Exception | None = None

    def execute(self) -> None:
        """Run the unit. Its own failure is kept for its caller; a failure of the store is raised."""
        try:
            self._result = self.work()
        except sqlite3.Error as error:
            if primary_code(error) in STORE_CODES:
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


class SqliteTransaction:
    """A transaction on the event loop, which never suspends."""

    outbox_feed_id: int | None = None

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def one(self, query: Query, **values: Any) -> Row | None:
        return first_row(self._connection, query, values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return self._connection.execute(query.sqlite, values).fetchall()

    async def run(self, query: Query, **values: Any) -> int:
        return affected_rows(self._connection, query, values)

    async def pause(self) -> None:
        pass


class HeavyTransaction:
    """A transaction whose statements run in the writer's thread: each is one long C call for a whole batch."""

    outbox_feed_id: int | None = None

    def __init__(
        self, connection: sqlite3.Connection, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._connection, self._in_thread = connection, in_thread

    async def one(self, query: Query, **values: Any) -> Row | None:
        return await self._in_thread(lambda: first_row(self._connection, query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return await self._in_thread(  # type: ignore[no-any-return]
            lambda: self._connection.execute(query.sqlite, values).fetchall()
        )

    async def run(self, query: Query, **values: Any) -> int:
        return await self._in_thread(  # type: ignore[no-any-return]
            lambda: affected_rows(self._connection, query, values)
        )

    async def pause(self) -> None:
        await yield_to_loop()


class SqliteSchemaChange(SqliteTransaction):
    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection)
        self._path = path

    async def script(self, text: str) -> None:
        for statement in statements(text):
            self._connection.execute(statement)

    async def keep_copy(self, name: str) -> str | None:
        # A second connection reads while this one holds the write lock, so the copy has the last committed state.
        copy = self._path.with_name(f"{self._path.name}.{name}")
        copy.unlink(missing_ok=True)
        make_private_file(copy)
        reader = connect(self._path, cache_kib=SMALL_CACHE_KIB)
        try:
            reader.execute("VACUUM INTO :copy", {"copy": str(copy)})
        finally:
            reader.close()
        return str(copy)


def first_row(connection: sqlite3.Connection, query: Query, values: dict[str, Any]) -> Row | None:
    """Execute a statement, and return its first row or None."""
    # fetchall, not fetchone: a statement that is not read to the end keeps its snapshot.
    rows = connection.execute(query.sqlite_by_position, [values[name] for name in query.parameters]).fetchall()
    return rows[0] if rows else None


def affected_rows(connection: sqlite3.Connection, query: Query, values: dict[str, Any]) -> int:
    """Execute a statement, and return the number of rows affected."""
    cursor = connection.execute(query.sqlite_by_position, [values[name] for name in query.parameters])
    cursor.fetchall()  # with RETURNING the rows are counted as they are read
    return cursor.rowcount


def in_savepoint(connection: sqlite3.Connection, unit: Unit[T]) -> T:
    """Run a unit within the open transaction; an exception undoes the unit alone."""
    connection.execute("SAVEPOINT unit")
    try:
        result = drive(unit(SqliteTransaction(connection)))
    except BaseException:
        # A full disk rolls the whole transaction back by itself, and the savepoint is gone with it.
        if connection.in_transaction:
            connection.execute("ROLLBACK TO unit")
            connection.execute("RELEASE unit")
        raise
    connection.execute("RELEASE unit")
    return result


def drive(work: Awaitable[T]) -> T:
    """Run a unit to its end without suspending. Raise RuntimeError if it awaits anything but its transaction."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    steps.close()
    raise RuntimeError("a unit of work may await nothing but its transaction")


def take_all(queue: "deque[SqliteJob]") -> "list[SqliteJob]":
    """Empty the queue, and return its jobs in their order."""
    jobs = list(queue)
    queue.clear()
    return jobs
