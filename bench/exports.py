"""The rows on `stoplist export` of a million records, against fetching and writing the same rows in plain Python."""

import asyncio
import csv
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import asyncpg

from bench import product
from bench.product import Deployment
from bench.rounds import Run
from bench.sample_people import COLUMNS, INSERT_ROW, People, Row, rows
from bench.seed import filling
from bench.server import BenchError
from bench.verdict import Verdict, compare_times, per_second

_BATCH = 10_000
_FEED_ID = 17
_INSERT_FEED = """
INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)
VALUES (17, 1, 'email', 'bench', {records}, 1)
"""
_SELECT = """
SELECT id, address, group_no, status, reason, occurred_ms, recorded_ms, source, seq FROM unsubscribes
WHERE feed_id = 17 ORDER BY seq
"""


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdict on a SQLite file that no server uses. The whole time of the command counts."""
    deployment = Deployment.create(run.scratch / "exported", partners=("bench",))
    with filling(deployment.database) as connection:
        for part in _batches(run.parameters.records):
            connection.executemany(INSERT_ROW, part)
        connection.execute(_INSERT_FEED.format(records=run.parameters.records))
    yield _verdict(run, "", deployment, lambda file: _fetch_sqlite(deployment.database, file))


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdict on PostgreSQL."""
    with product.on_postgresql(run.scratch / "exported-postgresql", partners=("bench",)) as deployment:
        asyncio.run(_fill(deployment.database_url, run.parameters.records))
        yield _verdict(
            run,
            " (PostgreSQL)",
            deployment,
            lambda file: asyncio.run(_fetch_postgresql(deployment.database_url, file)),
        )


def _verdict(run: Run, where: str, deployment: Deployment, fetch: Callable[[Path], float]) -> Verdict:
    def measure(number: int) -> dict[str, float]:
        file = run.scratch / f"{deployment.folder.name}-{number}.csv"
        ours_s = _export_s(deployment, file, run.parameters.records)
        file.unlink()
        plain_s = fetch(file)
        file.unlink()
        return {"export": ours_s, "plain": plain_s}

    seen_s = run.rounds(run.parameters.copies, measure, f"export{where}")
    title, shown = f"export of {run.parameters.records} records{where}", per_second(run.parameters.records)
    return compare_times(title, seen_s.values(), "{} of plain Python {}", shown, at_least=0.6)


def _batches(records: int) -> Iterator[list[Row]]:
    people = People("email", seed=4)
    for at in range(0, records, _BATCH):
        yield rows(people.acts(_BATCH), feed_id=_FEED_ID, after=at)


def _export_s(deployment: Deployment, file: Path, records: int) -> float:
    begun_s = time.perf_counter()
    result = json.loads(deployment.run("export", "--org", "bench", "--channel", "email", "--to", str(file), "--json"))
    took_s = time.perf_counter() - begun_s
    if result["records"] != records:
        raise BenchError(f"not all records were exported: {result}")
    return took_s


def _fetch_sqlite(database: Path, file: Path) -> float:
    """Return the seconds to fetch the rows and write their columns as they are."""
    with closing(sqlite3.connect(database)) as connection:
        begun_s = time.perf_counter()
        with file.open("w", newline="") as target:
            writer = csv.writer(target)
            for row in connection.execute(_SELECT):
                writer.writerow(row)
        return time.perf_counter() - begun_s


async def _fetch_postgresql(url: str, file: Path) -> float:
    connection = await asyncpg.connect(url)
    try:
        begun_s = time.perf_counter()
        with file.open("w", newline="") as target:
            writer = csv.writer(target)
            async with connection.transaction():
                async for row in connection.cursor(_SELECT, prefetch=1_000):
                    writer.writerow(row)
        return time.perf_counter() - begun_s
    finally:
        await connection.close()


async def _fill(url: str, records: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        for part in _batches(records):
            await _copy(connection, part)
        await connection.execute(_INSERT_FEED.format(records=records))
    finally:
        await connection.close()


async def _copy(connection: asyncpg.Connection, part: Sequence[Row]) -> None:
    await connection.copy_records_to_table("unsubscribes", records=part, columns=COLUMNS)
