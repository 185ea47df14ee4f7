"""The databases without Stoplist: the same rows written to, and read from, a copy of the same table."""

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import asyncpg
import msgspec

from bench.sample_people import COLUMNS, INSERT_ROW, Row
from stoplist.unsubscribes.model import Record

_PAGE = """
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq
FROM unsubscribes WHERE feed_id = {feed_id} AND seq > {after} ORDER BY seq LIMIT {limit}
"""


class Baseline(Protocol):
    """A copy of a feed's table, used without Stoplist."""

    def head(self, feed_id: int) -> int:
        """Return the highest number of the feed."""

    def insert(self, rows: Sequence[Row]) -> float:
        """Write the rows durably and return the seconds that it takes."""

    def page_s(self, feed_id: int, after: int, limit: int) -> float:
        """Return the seconds that it takes to fetch and encode the records of one page."""


class PlainSqlite:
    """`executemany` of the standard library, on a copy of the server's file. No server may run on `file`."""

    def __init__(self, file: Path, copy: Path) -> None:
        shutil.copy(file, copy)
        self._connection = sqlite3.connect(copy, isolation_level=None)
        # As durable as the server, with twice its writer's memory and SQLite's default checkpoints.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def head(self, feed_id: int) -> int:
        row = self._connection.execute("SELECT max(seq) FROM unsubscribes WHERE feed_id = ?", (feed_id,)).fetchone()
        return int(row[0] or 0)

    def insert(self, rows: Sequence[Row]) -> float:
        begun_s = time.perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT_ROW, rows)
        self._connection.execute("COMMIT")
        return time.perf_counter() - begun_s

    def page_s(self, feed_id: int, after: int, limit: int) -> float:
        query = _PAGE.format(feed_id=feed_id, after=after, limit=limit)
        begun_s = time.perf_counter()
        _encode(self._connection.execute(query).fetchall())
        return time.perf_counter() - begun_s


class PlainPostgresql:
    """COPY into, and plain reads from, a table with the same columns and indexes in the same cluster."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._connection: asyncpg.Connection[Any] = self._runner.run(asyncpg.connect(self._url))
        self._run("CREATE TABLE baseline (LIKE unsubscribes INCLUDING ALL)")
        self._run("INSERT INTO baseline SELECT * FROM unsubscribes")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def head(self, feed_id: int) -> int:
        query = "SELECT max(seq) FROM baseline WHERE feed_id = $1"
        return int(self._runner.run(self._connection.fetchval(query, feed_id)) or 0)

    def insert(self, rows: Sequence[Row]) -> float:
        begun_s = time.perf_counter()
        self._runner.run(self._connection.copy_records_to_table("baseline", records=rows, columns=COLUMNS))
        return time.perf_counter() - begun_s

    def page_s(self, feed_id: int, after: int, limit: int) -> float:
        query = _PAGE.format(feed_id=feed_id, after=after, limit=limit).replace("unsubscribes", "baseline")
        begun_s = time.perf_counter()
        _encode(self._runner.run(self._connection.fetch(query)))
        return time.perf_counter() - begun_s

    def _run(self, statement: str) -> None:
        self._runner.run(self._connection.execute(statement, timeout=600))


def _encode(rows: Sequence[Any]) -> bytes:
    """Return the records of a page as JSON, encoded in the straightforward way."""
    return msgspec.json.encode(
        [
            Record(
                id_, "bench", "grp_0123456789abcdefghijkl", address, status, reason, source, _text(at), _text(got), seq
            )
            for id_, _, address, status, reason, source, at, got, seq in rows
        ]
    )


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
