"""The rows on `stoplist import` of a million opt-outs, against plain inserts of the same rows into the same table."""

import asyncio
import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench import product
from bench.copying import bare_copy_s
from bench.latency import measure_during_batches, measure_during_import
from bench.product import Deployment
from bench.rounds import Run
from bench.sample_people import INSERT_ROW, Act, People, rows
from bench.server import BenchError
from bench.verdict import Verdict, compare_times, per_second, ratios, verdict

_BATCH = 10_000
_SAMPLE_S = 0.02


class Imported(NamedTuple):
    """The seconds that a command took, and the most memory that it held, in MiB."""

    seconds: float
    mib: float


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on a SQLite file that no server uses."""
    deployment = Deployment.create(run.scratch / "imported", partners=("bench",))
    acts = People("email", seed=2).acts(run.parameters.records)
    small, large = _list(run.scratch / "small.csv", acts[: len(acts) // 10]), _list(run.scratch / "large.csv", acts)
    memory: list[tuple[float, float]] = []
    reversals: list[tuple[float, float]] = []

    def measure(number: int) -> dict[str, float]:
        tenth = _import(deployment, f"small-{number}", small)
        reversed_ = _reverse(deployment, f"small-{number}")
        dry = _import(deployment, f"large-{number}", large, "--dry-run")
        new = _import(deployment, f"large-{number}", large)
        again = _import(deployment, f"large-{number}", large)
        third = _import(deployment, f"large-{number}", large)
        memory.append((tenth.mib, new.mib))
        reversals.append((reversed_.seconds / tenth.seconds, reversed_.mib))
        plain = _executemany(run.scratch / f"plain-{number}.db", deployment.database, acts)
        return {
            "import": new.seconds,
            "executemany": plain,
            "dry run": dry.seconds,
            "again": again.seconds,
            "third": third.seconds,
        }

    seen_s = run.rounds(run.parameters.copies, measure, "import")
    yield from _verdicts(run, "", seen_s, "executemany", at_least=0.45, again_at_least=1.5)
    large_mib = [one for _, one in memory]
    yield verdict("memory of an import", large_mib, "MiB", f"of {run.parameters.records} rows", at_most=150)
    yield verdict(
        "memory of an import, ten times the rows", ratios(large_mib, [one for one, _ in memory]), "x", "", at_most=1.6
    )
    times, mib = zip(*reversals, strict=True)
    yield verdict("reversal of an import", times, "x", "the time of the import", at_most=3)
    yield verdict("memory of a reversal", mib, "MiB", f"of {len(acts) // 10} rows", at_most=150)
    yield from _waits(run, deployment, large)


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL, against COPY."""
    acts = People("email", seed=3).acts(run.parameters.records)
    file = _list(run.scratch / "postgresql.csv", acts)

    def measure(number: int) -> dict[str, float]:
        with product.on_postgresql(run.scratch / f"imported-{number}", partners=("bench",)) as deployment:
            dry = _import(deployment, "imported", file, "--dry-run")
            new = _import(deployment, "imported", file)
            again = _import(deployment, "imported", file)
            third = _import(deployment, "imported", file)
            parts = (rows(acts[at : at + _BATCH], feed_id=17, after=at) for at in range(0, len(acts), _BATCH))
            plain = asyncio.run(bare_copy_s(deployment.database_url, parts))
        return {
            "import": new.seconds,
            "COPY": plain,
            "dry run": dry.seconds,
            "again": again.seconds,
            "third": third.seconds,
        }

    seen_s = run.rounds(run.parameters.copies, measure, "import (PostgreSQL)")
    yield from _verdicts(run, " (PostgreSQL)", seen_s, "COPY", at_least=0.35, again_at_least=0.5)
    with product.on_postgresql(run.scratch / "imported-waits", partners=("bench",)) as deployment:
        yield from _waits(run, deployment, file)


def _verdicts(
    run: Run, where: str, seen_s: dict[str, list[float]], plain: str, *, at_least: float, again_at_least: float
) -> Iterator[Verdict]:
    shown, new_s = per_second(run.parameters.records), seen_s["import"]
    yield compare_times(
        f"import of new opt-outs{where}", (new_s, seen_s[plain]), f"{{}} of {plain} {{}}", shown, at_least=at_least
    )
    # The second import confirms every record, so that a reversal of the first leaves it; the third writes nothing.
    for title, name, times in (
        ("dry run of an import", "dry run", 1.5),
        ("the same file again, which confirms every record", "again", again_at_least),
        ("the same file a third time", "third", 1.5),
    ):
        faster = ratios(new_s, seen_s[name])
        yield verdict(f"{title}{where}", faster, "x", "as fast as the import", at_least=times)


def _waits(run: Run, deployment: Deployment, file: Path) -> Iterator[Verdict]:
    """Yield the verdicts on the waits of others during an import, against those during a partner's batches."""
    command = _command(deployment, "beside", file)
    deployment.run("org", "create", "beside", "--name", "Beside")
    with deployment.server() as server:
        run.progress("a partner posts batches of 10 000, then a file is imported")
        duration_s = run.parameters.waits_s / 3
        batches = measure_during_batches(server, duration_s=duration_s, seed=2_000)
        imported = measure_during_import(server, command, duration_s=duration_s, seed=2_001)
    for kind in ("read", "one-item POST"):
        before, now = batches[kind].p99_ms, imported[kind].p99_ms
        title = f"wait of a {kind} during an import, p99 / during batches{deployment.where}"
        yield verdict(title, [now / before], "x", f"{now:.0f} against {before:.0f} ms", at_most=1.2)


def _list(path: Path, acts: Sequence[Act]) -> Path:
    """Write a list as SendGrid exports it."""
    with path.open("w") as file:
        file.write("email,created\n")
        file.writelines(f"{act.address},{act.occurred_ms // 1000}\n" for act in acts)
    return path


def _command(deployment: Deployment, slug: str, file: Path, *options: str) -> list[str]:
    words = ("import", "run", str(file), "--org", slug, "--channel", "email", "--all-groups", *(options or ("--yes",)))
    return [*deployment.stoplist(), *words]


def _import(deployment: Deployment, slug: str, file: Path, *options: str) -> Imported:
    if f'"{slug}"' not in deployment.run("org", "list", "--json"):
        deployment.run("org", "create", slug, "--name", slug)
    return _timed(deployment, _command(deployment, slug, file, *options))


def _reverse(deployment: Deployment, slug: str) -> Imported:
    """Reverse the only import into an organization."""
    (found,) = json.loads(deployment.run("import", "list", "--org", slug, "--json"))
    return _timed(deployment, [*deployment.stoplist(), "import", "reverse", found["import_id"], "--yes"])


def _timed(deployment: Deployment, command: list[str]) -> Imported:
    begun_s = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=deployment.folder.parent,
        env=deployment.environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    peak_mib = 0.0
    while process.poll() is None:
        peak_mib = max(peak_mib, _peak_mib(process.pid))
        time.sleep(_SAMPLE_S)
    took_s = time.perf_counter() - begun_s
    if process.returncode:
        raise BenchError(f"stoplist import: {process.stderr.read().decode() if process.stderr else process.returncode}")
    return Imported(took_s, peak_mib)


def _peak_mib(process_id: int) -> float:
    """Return the most memory that a process has held; 0 if it has ended.

    Not `ru_maxrss`, which begins with what this process held when it started the other.
    """
    status = Path(f"/proc/{process_id}/status").read_text()
    peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(peak[1]) / 1024 if peak else 0.0


def _executemany(path: Path, schema: Path, acts: Sequence[Act]) -> float:
    """Return the seconds of one durable transaction that inserts the same rows into the same table of another file."""
    with closing(sqlite3.connect(schema)) as file:
        statements = [row[0] for row in file.execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'unsubscribes'")]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
        for statement in filter(None, statements):
            connection.execute(statement)
        took_s = 0.0
        connection.execute("BEGIN")
        for at in range(0, len(acts), _BATCH):
            part = rows(acts[at : at + _BATCH], feed_id=17, after=at)
            begun_s = time.perf_counter()
            connection.executemany(INSERT_ROW, part)
            took_s += time.perf_counter() - begun_s
        begun_s = time.perf_counter()
        connection.execute("COMMIT")
        took_s += time.perf_counter() - begun_s
    path.unlink()
    return took_s
