"""Take protections out of the code, one at a time, and report which of them the tests notice.

A test that cannot fail proves nothing: each entry of `mutations.toml` removes one check, lock, bound or deadline, and
some test must then fail. The runs are made in clones, and the checkout stays as it is.

Usage: python tools/mutations.py [--rev REV] [--jobs 2] [--only ID …] [--near] [--report FILE] [--against REPORT]
"""

import argparse
import fcntl
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NEAR_LIMIT_S, SUITE_LIMIT_S = 600.0, 7200.0
_PYTEST = ("-m", "pytest", "-x", "-q", "-rfE", "-p", "no:randomly", "-p", "no:cacheprovider")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_PASSED, _TESTS_FAILED, _NOTHING_COLLECTED = 0, 1, 5
_ERROR, _MISSED = "error", "missed"


@dataclass(frozen=True)
class Protection:
    id: str
    file: str
    find: str
    replace: str
    tests: list[str]
    count: int = 1


class Run(NamedTuple):
    """The outcome of one pytest: whether a test failed, which one, or why the run says nothing."""

    is_noticed: bool
    detail: str = ""
    error: str = ""


class Stage(NamedTuple):
    name: str
    tests: Sequence[str]
    marker: str
    limit_s: float


def main() -> int:
    options = _options()
    entries = tomllib.loads(options.list.read_text("utf-8"))["protection"]
    protections = [Protection(**entry) for entry in entries]
    if unknown := set(options.only) - {one.id for one in protections}:
        raise SystemExit(f"There is no protection {', '.join(sorted(unknown))} in {options.list}.")
    rev = _output("git", "-C", str(ROOT), "rev-parse", f"{options.rev}^{{commit}}")
    chosen = [one for one in protections if not options.only or one.id in options.only]
    known = {} if options.only else _read_report(options.report, rev)
    left = [one for one in chosen if one.id not in known]
    with ThreadPoolExecutor(options.jobs) as threads:
        clones = list(threads.map(lambda number: _clone(options.folder / str(number), rev), range(options.jobs)))
        if left and not options.skip_check:
            _check_unmutated(threads, clones, left, options.suite)
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for clone in clones:
            free.put(clone)
        writing = threading.Lock()

        def examine(protection: Protection) -> dict[str, Any]:
            clone = free.get()
            try:
                result = _examine(clone, protection, options.suite, is_near=options.near)
            finally:
                free.put(clone)
            with writing:
                _say(f"{result['stage']:<7}{result['seconds']:>6.0f} s  {protection.id}  {result['detail']}")
                if options.report:
                    with options.report.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({**result, "rev": rev}, ensure_ascii=False) + "\n")
            return result

        results = known | {result["id"]: result for result in threads.map(examine, left)}
    return _conclude([results[one.id] for one in chosen], options.against)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rev", default="HEAD", help="the commit to examine")
    parser.add_argument("--jobs", type=int, default=2, help="clones that are examined at once")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these protections, even if reported")
    parser.add_argument("--list", type=Path, default=ROOT / "tools" / "mutations.toml", help="the protections")
    parser.add_argument("--report", type=Path, help="JSON lines to write; those of the same commit are not repeated")
    parser.add_argument("--against", type=Path, help="fail if this report noticed a protection that is missed now")
    parser.add_argument("--suite", choices=("quick", "all"), default="all", help="without or with the slow tests")
    parser.add_argument("--near", action="store_true", help="run only the tests that an entry names")
    parser.add_argument("--skip-check", action="store_true", help="do not run the tests of the entries unmutated first")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "stoplist-mutations", help="where the clones are"
    )
    return parser.parse_args()


def _clone(folder: Path, rev: str) -> Path:
    if not folder.exists():
        _output("git", "clone", "--quiet", "--no-checkout", str(ROOT), str(folder))
    try:
        # Held until the program ends: two that change the files of one clone would test each other's mutations.
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"Another run uses {folder}: wait for it, or name another --folder.") from None
    _output("git", "-C", str(folder), "fetch", "--quiet", str(ROOT), rev)  # the folder may be of another checkout
    _output("git", "-C", str(folder), "checkout", "--quiet", "--force", "--detach", rev)
    _output("make", "--silent", "--directory", str(folder), ".venv/.development")
    return folder


def _check_unmutated(
    threads: ThreadPoolExecutor, clones: list[Path], protections: list[Protection], suite: str
) -> None:
    """Exit if a test fails without any mutation, which would be mistaken for noticing one."""
    tests = list(dict.fromkeys(test for one in protections for test in one.tests))
    parts = [tests[number :: len(clones)] for number in range(len(clones))]
    stages = [Stage("check", part, "not slow" if suite == "quick" else "", SUITE_LIMIT_S) for part in parts if part]
    for run in threads.map(_run, clones, stages):
        if run.is_noticed or run.error:
            raise SystemExit(f"The tests fail without a mutation: {run.detail or run.error}")


def _examine(clone: Path, protection: Protection, suite: str, *, is_near: bool) -> dict[str, Any]:
    began_s = time.monotonic()
    stage, detail = _MISSED, ""
    try:
        with _mutated(clone, protection):
            for one in _stages(protection, suite, is_near=is_near):
                run = _run(clone, one)
                if run.is_noticed or run.error:
                    stage, detail = (_ERROR, run.error) if run.error else (one.name, run.detail)
                    break
    except (ValueError, OSError) as error:
        stage, detail = _ERROR, str(error)
    return {"id": protection.id, "stage": stage, "detail": detail, "seconds": round(time.monotonic() - began_s, 1)}


def _stages(protection: Protection, suite: str, *, is_near: bool) -> Iterator[Stage]:
    """Yield the runs, the cheapest first. No argument stands for the whole suite."""
    for name, marker in (("quick", "not slow"), ("slow", "slow")):
        if name == "slow" and suite == "quick":
            return
        yield Stage(name, protection.tests, marker, NEAR_LIMIT_S)
        if not is_near:
            yield Stage(name, (), marker, SUITE_LIMIT_S)


@contextmanager
def _mutated(clone: Path, protection: Protection) -> Iterator[None]:
    path = clone / protection.file
    original, times = path.read_text("utf-8"), path.stat()
    found = original.count(protection.find)
    if found != protection.count:
        raise ValueError(f"stale: the text is in {protection.file} {found} times, not {protection.count}")
    try:
        path.write_text(original.replace(protection.find, protection.replace), "utf-8")
        yield
    finally:
        path.write_text(original, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # what is compiled of it stays good


def _run(clone: Path, stage: Stage) -> Run:
    command = ["nice", "-n", "5", str(clone / ".venv/bin/python"), *_PYTEST, "-m", stage.marker, *stage.tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(  # noqa: S603 - a program of the clone
            command, cwd=clone, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(stage.limit_s)
        except subprocess.TimeoutExpired:
            return Run(is_noticed=True, detail=f"no end within {stage.limit_s:.0f} s")
        finally:
            _end(process)
        output.seek(0)
        return _outcome(status, output.read())


def _outcome(status: int, output: str) -> Run:
    failed = _FAILED.search(output, max(0, output.rfind("short test summary info")))
    detail = failed[1] if failed else ""
    if "ERROR collecting" in output:
        return Run(is_noticed=False, error=f"the tests cannot be collected: {detail}")
    if status == _TESTS_FAILED:
        return Run(is_noticed=True, detail=detail)
    if status in (_PASSED, _NOTHING_COLLECTED):  # such as no slow tests
        return Run(is_noticed=False)
    return Run(is_noticed=False, error=f"pytest ended with {status}: {output.strip()[-300:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the processes of a run that has not ended: first as Ctrl+C does, so that fixtures stop their servers."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)


def _read_report(report: Path | None, rev: str) -> dict[str, dict[str, Any]]:
    """Return the results by id, without errors; those of another commit only if `rev` is empty."""
    if report is None or not report.exists():
        return {}
    results = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
    return {one["id"]: one for one in results if one["stage"] != _ERROR and rev in ("", one["rev"])}


def _conclude(results: list[dict[str, Any]], against: Path | None) -> int:
    """Print the closing table, and return the exit status."""
    by_stage = {stage: [one["id"] for one in results if one["stage"] == stage] for stage in ("quick", "slow")}
    missed, errors = ([one["id"] for one in results if one["stage"] == stage] for stage in (_MISSED, _ERROR))
    quick, slow = len(by_stage["quick"]), len(by_stage["slow"])
    _say(f"\n{len(results)} protections: noticed by quick tests {quick}, by all tests {quick + slow}")
    for title, ids in (("only slow", by_stage["slow"]), ("missed", missed), ("errors", errors)):
        _say(f"{title}: {', '.join(ids) or 'none'}")
    before = _read_report(against, "")
    lost = [one for one in missed if before.get(one, {"stage": _MISSED})["stage"] != _MISSED]
    if lost:
        _say(f"noticed in {against}, and missed now: {', '.join(lost)}")
    return 1 if lost or errors else 0


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git and make
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
