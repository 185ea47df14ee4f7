"""The databases without Stoplist, through sqlite3 and asyncpg alone: to prepare data, and as the baselines."""

import asyncio
import csv
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from bench.machine import timed
from bench.sample_people import COLUMNS, INSERT_ROW, People, Row, rows

FEED_ID = 17
"""The feed of the first organization's channel `email`."""
_BATCH = 10_000
_INSERT_FEED = """
INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)
VALUES (17, 1, 'email', 'bench', {records}, 1)
"""


class PlainSqlite:
    """A connection to a file, and to its table of records."""

    table = "unsubscribes"

    def __init__(self, url: str, cache_kib: int) -> None:
        self._sqlite = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
        self.close = self._sqlite.close
        # As durable as the server.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", f"cache_size = -{cache_kib}"):
            self.query(f"PRAGMA {pragma}")

    def query(self, statement: str) -> Sequence[Any]:
        """Execute a statement, and return all rows."""
        return self._sqlite.execute(statement).fetchall()

    def insert_s(self, parts: Iterable[Sequence[Row]]) -> float:
        """Insert rows durably, and return the seconds that it takes, without the time to make the parts."""
        self.query("BEGIN IMMEDIATE")
        insert_s = sum(timed(self._sqlite.executemany, INSERT_ROW, part)[0] for part in parts)
        return insert_s + timed(self.query, "COMMIT")[0]

    def csv_s(self, select: str, file: Path) -> float:
        """Write the selected rows to a file, one by one, and return the seconds that it takes."""
        begun_s = time.perf_counter()
        with file.open("w", newline="") as target:
            writer = csv.writer(target)
            for row in self._sqlite.execute(select):
                writer.writerow(row)
        return time.perf_counter() - begun_s


class PlainPostgresql:
    """The same for PostgreSQL, where each part is inserted by a COPY of its own."""

    table = "unsubscribes"

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._run = self._runner.run
        self._asyncpg: asyncpg.Connection[Any] = self._run(asyncpg.connect(url, command_timeout=600))

    def query(self, statement: str) -> Sequence[Any]:
        return self._run(self._asyncpg.fetch(statement))

    def insert_s(self, parts: Iterable[Sequence[Row]]) -> float:
        copy = self._asyncpg.copy_records_to_table
        return sum(timed(self._run, copy(self.table, records=part, columns=COLUMNS))[0] for part in parts)

    def csv_s(self, select: str, file: Path) -> float:
        async def write() -> None:
            with file.open("w", newline="") as target:
                writer = csv.writer(target)
                async with self._asyncpg.transaction():
                    async for row in self._asyncpg.cursor(select, prefetch=1_000):
                        writer.writerow(row)

        return timed(self._run, write())[0]

    def close(self) -> None:
        self._run(self._asyncpg.close())
        self._runner.close()


PlainConnection = PlainSqlite | PlainPostgresql


@contextmanager
def connected(url: str, *, cache_kib: int = 2_000) -> Iterator[PlainConnection]:
    """Yield a connection to a database. SQLite gets `cache_kib` of memory, by default as much as it takes itself."""
    connection = PlainSqlite(url, cache_kib) if url.startswith("sqlite:") else PlainPostgresql(url)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def baseline(url: str, *, cache_kib: int = 2_000) -> Iterator[PlainConnection]:
    """Yield a connection to a copy of the table of records: in a file of its own, or a table in the same database.

    No server may use a file of SQLite.
    """
    if url.startswith("sqlite:"):
        url, original = f"{url}-baseline", url
        shutil.copy(original.removeprefix("sqlite:///"), url.removeprefix("sqlite:///"))
    with connected(url, cache_kib=cache_kib) as connection:
        if isinstance(connection, PlainPostgresql):
            connection.query("CREATE TABLE baseline (LIKE unsubscribes INCLUDING ALL)")
            connection.query("INSERT INTO baseline SELECT * FROM unsubscribes")
            connection.table = "baseline"
        yield connection


def fill_feed(connection: PlainConnection, records: int, *, seed: int) -> None:
    """Add an e-mail feed of `records` made-up people to the first organization."""
    people = People("email", seed=seed)
    connection.insert_s(rows(people.acts(_BATCH), feed_id=FEED_ID, after=at) for at in range(0, records, _BATCH))
    connection.query(_INSERT_FEED.format(records=records))
