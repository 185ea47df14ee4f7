"""The rows on `stoplist import` of a million opt-outs, against plain inserts of the same rows into the same table."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.direct import FEED_ID, baseline
from bench.latency import measure_during_batches, measure_during_import
from bench.product import SQLITE, DatabaseKind, Deployment, deployed
from bench.rounds import Run
from bench.sample_people import Act, People, rows
from bench.server import BenchError
from bench.verdict import Series, Verdict, verdict

_BATCH = 10_000
_SAMPLE_S = 0.02
_MAX_MIB = 150


class Imported(NamedTuple):
    """The seconds that a command took, and the most memory that it held, in MiB."""

    seconds: float
    mib: float


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts, with a file that no server uses; on SQLite also those on memory and on reversals."""
    records, folder = run.parameters.records, f"imported-{database.name}"
    acts = People("email", seed=2).acts(records)
    large, small = _list(run.scratch / "large.csv", acts), _list(run.scratch / "small.csv", acts[: records // 10])

    def import_all(number: int) -> dict[str, float]:
        with (
            deployed(database, run.scratch / f"{folder}-{number}", partners=()) as deployment,
            baseline(deployment.database_url) as plain,
        ):
            for file in (small, large):
                deployment.run("org", "create", file.stem, "--name", file.stem)
            seen: dict[str, float] = {}
            if database is SQLITE:
                tenth, reversal = _import(deployment, small), _reverse(deployment, small)
                seen = {"tenth": tenth.seconds, "tenth MiB": tenth.mib}
                seen |= {"reversal": reversal.seconds, "reversal MiB": reversal.mib}
            dry = _import(deployment, large, "--dry-run")
            new, again, third = (_import(deployment, large) for _ in range(3))
            parts = (rows(acts[at : at + _BATCH], feed_id=FEED_ID, after=at) for at in range(0, records, _BATCH))
            seen |= {"import": new.seconds, "MiB": new.mib, "plain": plain.insert_s(parts), "dry run": dry.seconds}
            return seen | {"again": again.seconds, "third": third.seconds}

    seen = run.rounds(import_all, f"import on {database.value}", count=run.parameters.copies, warm_up=False)
    yield from _verdicts(database, records, seen)
    yield from _waits(run, database, large)


def _verdicts(database: DatabaseKind, records: int, seen: Mapping[str, Series]) -> Iterator[Verdict]:
    where = "" if database is SQLITE else " (PostgreSQL)"
    name, at_least = ("executemany", 0.40) if database is SQLITE else ("COPY", 0.35)
    ours, plain = records / seen["import"], records / seen["plain"]
    detail = f"{ours:.0f}/s of {name} {plain:.0f}/s"
    yield verdict(f"import of new opt-outs{where}", ours / plain, "%", detail, at_least=at_least)
    # The second import confirms every record, so that a reversal of the first leaves it; the third writes nothing.
    for title, key, at_least in (
        ("dry run of an import", "dry run", 1.5),
        ("the same file again, which confirms every record", "again", 1.5 if database is SQLITE else 1.25),
        ("the same file a third time", "third", 1.5 if database is SQLITE else 1.4),
    ):
        yield verdict(f"{title}{where}", seen["import"] / seen[key], "x", "as fast as the import", at_least=at_least)
    if database is SQLITE:
        growth = seen["MiB"] / seen["tenth MiB"]
        yield verdict("memory of an import", seen["MiB"], "MiB", f"of {records} rows", at_most=_MAX_MIB)
        yield verdict("memory of an import, ten times the rows", growth, "x", at_most=1.2)
        times = seen["reversal"] / seen["tenth"]
        yield verdict("reversal of an import", times, "x", "the time of the import", at_most=3)
        detail = f"of {records // 10} rows"
        yield verdict("memory of a reversal", seen["reversal MiB"], "MiB", detail, at_most=_MAX_MIB)


def _waits(run: Run, database: DatabaseKind, file: Path) -> Iterator[Verdict]:
    """Yield the verdicts on the waits of others during an import, against those during a partner's batches."""
    folder = run.scratch / f"waits-{database.name}"
    with deployed(database, folder, partners=("bench",)) as deployment, deployment.server() as server:
        run.progress("a partner posts batches of 10 000, then a file is imported")
        deployment.run("org", "create", file.stem, "--name", file.stem)
        command = _command(deployment, file)
        duration_s = run.parameters.waits_s / 3
        batches = measure_during_batches(server, duration_s=duration_s, seed=2_000)
        imported = measure_during_import(server, command, duration_s=duration_s, seed=2_001)
    for kind in ("read", "one-item POST"):
        before, now = batches[kind].p99_ms, imported[kind].p99_ms
        title = f"wait of a {kind} during an import, p99 / during batches{deployment.where}"
        yield verdict(title, [now / before], "x", f"{now:.0f} against {before:.0f} ms", at_most=1.2)


def _list(path: Path, acts: Sequence[Act]) -> Path:
    """Write a list as SendGrid exports it."""
    lines = (f"{act.address},{act.occurred_ms // 1000}\n" for act in acts)
    path.write_text("".join(("email,created\n", *lines)))
    return path


def _command(deployment: Deployment, file: Path, *options: str) -> list[str]:
    """Return the command that imports a file into the organization of the same name."""
    words = ("import", "run", str(file), "--org", file.stem, "--channel", "email", "--all-groups")
    return [*deployment.command, *words, *(options or ("--yes",))]


def _import(deployment: Deployment, file: Path, *options: str) -> Imported:
    return _timed(deployment, _command(deployment, file, *options))


def _reverse(deployment: Deployment, file: Path) -> Imported:
    """Reverse the only import into an organization."""
    (found,) = deployment.json("import", "list", "--org", file.stem)
    return _timed(deployment, [*deployment.command, "import", "reverse", found["import_id"], "--yes"])


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
