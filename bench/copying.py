"""`stoplist copy` of a million records against a bare COPY of the same rows."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import asyncpg

from bench import postgresql
from bench.product import Deployment
from bench.sample_people import COLUMNS, INSERT_ROW, People, rows
from bench.server import BenchError
from bench.verdict import Target, Verdict, spread

_BATCH = 10_000
_FEED_ID = 17
_INSERT_FEED = """
INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)
VALUES (?, 1, 'email', 'bench', ?, 1)
"""

Progress = Callable[[str], None]


def measure(records: int, rounds: int, scratch: Path, progress: Progress) -> Iterator[Verdict]:
    """Yield the verdict. The whole time of the command counts: start, reading, hashing, COPY and verification."""
    source = Deployment(scratch / "copied")
    source.folder.mkdir()
    source.run("migrate")
    source.run("org", "create", "bench", "--name", "Bench", "--default-group", "News")
    progress(f"writing {records} records for a copy")
    _fill(source.database, records)
    ours_s: list[float] = []
    plain_s: list[float] = []
    for number in range(rounds):
        with ExitStack() as running:
            settings = running.enter_context(postgresql.settings())
            target = Deployment(scratch / "copied", settings)
            target.run("migrate")
            url = settings["STOPLIST_DATABASE_URL"]
            ours_s.append(_copy_s(target, source.database, url, records))
            plain_s.append(asyncio.run(_plain_copy(source.database, url)))
        progress(f"round {number + 1}/{rounds}  copy of {records}: {ours_s[-1]:.1f} s, bare COPY {plain_s[-1]:.1f} s")
    yield Verdict(
        title=f"stoplist copy of {records} records",
        figure=spread([plain / ours for plain, ours in zip(plain_s, ours_s, strict=True)]),
        unit="%",
        target=Target(0.5, at_least=True),
        detail=f"{records / spread(ours_s).median:.0f}/s of bare COPY {records / spread(plain_s).median:.0f}/s",
    )


def _fill(file: Path, records: int) -> None:
    people = People("email", seed=1)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000;")
        for at in range(0, records, _BATCH):
            with connection:
                connection.executemany(INSERT_ROW, rows(people.acts(_BATCH), feed_id=_FEED_ID, after=at))
        with connection:
            connection.execute(_INSERT_FEED, (_FEED_ID, records))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy_s(target: Deployment, source: Path, url: str, records: int) -> float:
    begun_s = time.perf_counter()
    result = json.loads(target.run("copy", "--from", f"sqlite:///{source}", "--to", url, "--json"))
    took_s = time.perf_counter() - begun_s
    if result["rows"]["unsubscribes"] != records:
        raise BenchError(f"not all rows were copied: {result}")
    return took_s


async def _plain_copy(source: Path, url: str) -> float:
    """Return the seconds of a COPY of rows in memory into a table with the same columns and indexes."""
    connection = await asyncpg.connect(url)
    took_s = 0.0
    try:
        await connection.execute("CREATE TABLE baseline (LIKE unsubscribes INCLUDING ALL)")
        with closing(sqlite3.connect(source)) as file:
            cursor = file.execute(f"SELECT {', '.join(COLUMNS)} FROM unsubscribes ORDER BY rowid")  # noqa: S608
            while part := cursor.fetchmany(5 * _BATCH):
                begun_s = time.perf_counter()
                await connection.copy_records_to_table("baseline", records=part, columns=COLUMNS)
                took_s += time.perf_counter() - begun_s
    finally:
        await connection.close()
    return took_s
