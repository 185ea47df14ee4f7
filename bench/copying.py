"""The row on `stoplist copy` of a million records, against a bare COPY of the same rows."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing

from bench.direct import fill_feed
from bench.machine import timed
from bench.product import SQLITE, DatabaseKind, deployed
from bench.rounds import Run
from bench.sample_people import COLUMNS
from bench.server import BenchError
from bench.verdict import Verdict, verdict

_ROWS_A_PART = 50_000
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM unsubscribes ORDER BY rowid"  # noqa: S608


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdict. The whole time of the command counts: start, reading, hashing, COPY and verification."""
    records = run.parameters.records
    with deployed(SQLITE, run.scratch / "copied", partners=("bench",)) as source:
        run.progress(f"writing {records} records for a copy")
        with source.connected() as connection:
            fill_feed(connection, records, seed=1)
        os.sync()

        def copy(_: int) -> dict[str, float]:
            with (
                deployed(database, source.folder, partners=()) as target,
                target.connected() as plain,
                closing(sqlite3.connect(source.file)) as file,
            ):
                ours_s, result = timed(target.copy_from, source.file)
                if result["rows"]["unsubscribes"] != records:
                    raise BenchError(f"not all rows were copied: {result}")
                # Only now: a copy refuses a database with a table that is not Stoplist's.
                plain.query("CREATE TABLE baseline (LIKE unsubscribes INCLUDING ALL)")
                plain.table, rows = "baseline", file.execute(_SELECT)
                return {"copy": ours_s, "plain": plain.insert_s(iter(lambda: rows.fetchmany(_ROWS_A_PART), []))}

        seen_s = run.rounds(copy, f"copy of {records}", count=run.parameters.copies, warm_up=False)
    ours, plain = records / seen_s["copy"], records / seen_s["plain"]
    title, detail = f"stoplist copy of {records} records", f"{ours:.0f}/s of bare COPY {plain:.0f}/s"
    yield verdict(title, ours / plain, "%", detail, at_least=0.5)
