"""The row on `stoplist export` of a million records, against fetching and writing the same rows in plain Python."""

import os
from collections.abc import Iterator

from bench.direct import fill_feed
from bench.machine import timed
from bench.product import DatabaseKind, deployed
from bench.rounds import Run
from bench.server import BenchError
from bench.verdict import Verdict, verdict

_SELECT = """
SELECT id, address, group_no, status, reason, occurred_ms, recorded_ms, source, seq FROM unsubscribes
WHERE feed_id = 17 ORDER BY seq
"""


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdict, with a SQLite file that no server uses. The whole time of the command counts."""
    records, file = run.parameters.records, run.scratch / "exported.csv"
    with deployed(database, run.scratch / f"exported-{database.name}", partners=("bench",)) as deployment:
        with deployment.connected() as connection:
            fill_feed(connection, records, seed=4)
        os.sync()
        options = ("--org", "bench", "--channel", "email", "--to", str(file))

        def export_s() -> float:
            file.unlink(missing_ok=True)
            took_s, result = timed(deployment.json, "export", *options)
            if result["records"] != records:
                raise BenchError(f"not all records were exported: {result}")
            return took_s

        def plain_s() -> float:
            file.unlink(missing_ok=True)
            with deployment.connected() as connection:
                return connection.csv_s(_SELECT, file)

        sides, label = {"export": export_s, "plain": plain_s}, f"export{deployment.where}"
        seen_s = run.in_turn(sides, label, count=run.parameters.copies, warm_up=False)
    ours, plain = records / seen_s["export"], records / seen_s["plain"]
    title, detail = f"export of {records} records{deployment.where}", f"{ours:.0f}/s of plain Python {plain:.0f}/s"
    yield verdict(title, ours / plain, "%", detail, at_least=0.6)
