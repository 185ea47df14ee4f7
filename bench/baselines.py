"""The databases without Stoplist: the same rows written to, and read from, a copy of the same table."""

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from bench.sample_people import COLUMNS, INSERT_ROW, Act, Row, rows
from stoplist.unsubscribes.model import Record

_PAGE = """
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq
FROM {table} WHERE feed_id = {feed_id} AND seq > {after} ORDER BY seq LIMIT {limit}
"""


class Baseline(msgspec.Struct, frozen=True):
    """A copy of a feed's table, used without Stoplist through two functions of its database."""

    table: str
    query: Callable[[str], Sequence[Any]]
    write: Callable[[Sequence[Row]], object]

    def insert(self, acts: Sequence[Act], feed_id: int) -> float:
        """Write the rows of the acts durably, after those that the feed has, and return the seconds that it takes."""
        newest = self.query(f"SELECT max(seq) FROM {self.table} WHERE feed_id = {feed_id}")  # noqa: S608
        # A made-up number may occur twice among a million.
        unique = list({act.address: act for act in acts}.values())
        new = rows(unique, feed_id=feed_id, after=int(newest[0][0] or 0))
        begun_s = time.perf_counter()
        self.write(new)
        return time.perf_counter() - begun_s

    def page_s(self, feed_id: int, after: int, limit: int) -> float:
        """Return the seconds that it takes to fetch and encode the records of one page."""
        query = _PAGE.format(table=self.table, feed_id=feed_id, after=after, limit=limit)
        begun_s = time.perf_counter()
        _encode(self.query(query))
        return time.perf_counter() - begun_s


@contextmanager
def plain_sqlite(file: Path, copy: Path) -> Iterator[Baseline]:
    """Yield `executemany` of the standard library, on a copy of the server's file. No server may run on `file`."""
    shutil.copy(file, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:

        def query(statement: str) -> Sequence[Any]:
            return connection.execute(statement).fetchall()

        def write(rows: Sequence[Row]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT_ROW, rows)
            connection.execute("COMMIT")

        # As durable as the server, with twice its writer's memory and SQLite's default checkpoints.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
            query(f"PRAGMA {pragma}")
        yield Baseline("unsubscribes", query, write)


@contextmanager
def plain_postgresql(url: str) -> Iterator[Baseline]:
    """Yield COPY into, and plain reads from, a table with the same columns and indexes in the same cluster."""
    with asyncio.Runner() as runner:
        connection: asyncpg.Connection[Any] = runner.run(asyncpg.connect(url, command_timeout=600))
        runner.run(connection.execute("CREATE TABLE baseline (LIKE unsubscribes INCLUDING ALL)"))
        runner.run(connection.execute("INSERT INTO baseline SELECT * FROM unsubscribes"))
        yield Baseline(
            "baseline",
            lambda query: runner.run(connection.fetch(query)),
            lambda rows: runner.run(connection.copy_records_to_table("baseline", records=rows, columns=COLUMNS)),
        )
        runner.run(connection.close())


def _encode(records: Sequence[Any]) -> bytes:
    """Return the records of a page as JSON, encoded in the straightforward way."""
    group = "grp_0123456789abcdefghijkl"
    return msgspec.json.encode(
        [
            Record(id_, "bench", group, address, status, reason, source, _text(at), _text(got), seq)
            for id_, _, address, status, reason, source, at, got, seq in records
        ]
    )


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
