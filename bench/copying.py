"""The row on `stoplist copy` of a million records, against a bare COPY of the same rows."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from bench import product
from bench.product import Deployment
from bench.rounds import Run
from bench.sample_people import COLUMNS, INSERT_ROW, People, rows
from bench.seed import filling
from bench.server import BenchError
from bench.verdict import Verdict, compare_times, per_second

_BATCH = 10_000
_FEED_ID = 17
_INSERT_FEED = """
INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)
VALUES (?, 1, 'email', 'bench', ?, 1)
"""


def measure(run: Run) -> Iterator[Verdict]:
    """Yield the verdict. The whole time of the command counts: start, reading, hashing, COPY and verification."""
    records = run.parameters.records
    source = Deployment.create(run.scratch / "copied", partners=("bench",))
    run.progress(f"writing {records} records for a copy")
    people = People("email", seed=1)
    with filling(source.database) as connection:
        for at in range(0, records, _BATCH):
            connection.executemany(INSERT_ROW, rows(people.acts(_BATCH), feed_id=_FEED_ID, after=at))
        connection.execute(_INSERT_FEED, (_FEED_ID, records))

    def copy(_: int) -> dict[str, float]:
        with product.on_postgresql(source.folder, partners=()) as target:
            ours_s = _copy_s(source, target, records)
            return {"stoplist copy": ours_s, "plain": asyncio.run(_plain_copy(source.database, target.database_url))}

    seen_s = run.rounds(run.parameters.copies, copy, f"copy of {records}")
    title, shown = f"stoplist copy of {records} records", per_second(records)
    yield compare_times(title, seen_s.values(), "{} of bare COPY {}", shown, at_least=0.5)


def _copy_s(source: Deployment, target: Deployment, records: int) -> float:
    begun_s = time.perf_counter()
    result = json.loads(target.run("copy", "--from", source.database_url, "--to", target.database_url, "--json"))
    took_s = time.perf_counter() - begun_s
    if result["rows"]["unsubscribes"] != records:
        raise BenchError(f"not all rows were copied: {result}")
    return took_s


async def _plain_copy(source: Path, url: str) -> float:
    with closing(sqlite3.connect(source)) as file:
        cursor = file.execute(f"SELECT {', '.join(COLUMNS)} FROM unsubscribes ORDER BY rowid")  # noqa: S608
        return await bare_copy_s(url, iter(lambda: cursor.fetchmany(5 * _BATCH), []))


async def bare_copy_s(url: str, parts: Iterable[list[Any]]) -> float:
    """Return the seconds of a COPY of rows in memory into a table with the same columns and indexes.

    The time that it takes to make the parts is not counted.
    """
    connection = await asyncpg.connect(url)
    took_s = 0.0
    try:
        await connection.execute("CREATE TABLE baseline (LIKE unsubscribes INCLUDING ALL)")
        for part in parts:
            begun_s = time.perf_counter()
            await connection.copy_records_to_table("baseline", records=part, columns=COLUMNS)
            took_s += time.perf_counter() - begun_s
    finally:
        await connection.close()
    return took_s
