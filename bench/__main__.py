"""`python -m bench`: measure, print, and write bench/results/. Exits 1 if a target is missed."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from bench import (
    against,
    copying,
    erased,
    exports,
    feed,
    growth,
    hanging,
    imports,
    links,
    machine,
    pages,
    partner,
    proof,
    report,
    scale,
    tokens,
    waiting,
)
from bench.rounds import Run, RunParameters
from bench.server import BenchError
from bench.verdict import Outcome, Verdict

_HERE = Path(__file__).parent
_RESULTS, _DOCS = _HERE / "results", _HERE.parent / "docs"
_THOROUGH = RunParameters(
    rounds=7,
    duration_s=1.5,
    warm_up_s=0.3,
    records=1_000_000,
    grown=10_000_000,
    pages=100,
    waits_s=15.0,
    starts=7,
    copies=3,
)
_QUICK = RunParameters(
    rounds=3,
    duration_s=0.8,
    warm_up_s=0.2,
    records=200_000,
    grown=1_000_000,
    pages=10,
    waits_s=5.0,
    starts=3,
    copies=1,
)
_PARTS = {
    "tokens": "the token rows",
    "opt-outs": "the opt-outs",
    "scale": "PostgreSQL with Valkey, workers and copy",
    "lists": "imports and exports",
    "links": "opt-out links",
    "waiting": "requests that wait for a change",
    "proof": "states of feeds and positions of readers",
    "erased": "erased persons",
    "pages": "the admin pages",
    "partner": "stoplist-client",
}
_DATABASES = {"sqlite": "skip PostgreSQL", "postgresql": "measure only on PostgreSQL"}
_ROWS: Sequence[tuple[str, str, Callable[[Run], Iterable[Verdict]]]] = (
    ("tokens", "sqlite", tokens.on_sqlite),
    ("opt-outs", "sqlite", feed.on_sqlite),
    ("tokens", "postgresql", tokens.on_postgresql),
    ("opt-outs", "postgresql", feed.on_postgresql),
    ("scale", "postgresql", scale.measure),
    ("scale", "postgresql", copying.measure),
    ("scale", "postgresql", hanging.measure),
    ("lists", "sqlite", imports.on_sqlite),
    ("lists", "postgresql", imports.on_postgresql),
    ("lists", "sqlite", exports.on_sqlite),
    ("lists", "postgresql", exports.on_postgresql),
    ("links", "sqlite", links.on_sqlite),
    ("links", "postgresql", links.on_postgresql),
    ("waiting", "sqlite", waiting.on_sqlite),
    ("waiting", "postgresql", waiting.on_postgresql),
    ("proof", "sqlite", proof.on_sqlite),
    ("proof", "postgresql", proof.on_postgresql),
    ("erased", "sqlite", erased.on_sqlite),
    ("erased", "postgresql", erased.on_postgresql),
    ("pages", "sqlite", pages.on_sqlite),
    ("pages", "postgresql", pages.on_postgresql),
    ("partner", "sqlite", partner.measure),
)


def main() -> int:
    """Run the benchmark and return the exit status."""
    arguments = _arguments()
    try:
        # Beside the code, not in /tmp, where a durable write may cost nothing.
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=_HERE) as folder:
            (Path(folder) / ".gitignore").write_text("*\n")
            outcome = _measure(arguments, Path(folder))
        print(report.text(outcome))
        report.write(outcome, _RESULTS)
        print(f"written to {_RESULTS}")
        if arguments.keep:
            report.keep(outcome, _DOCS)
    except (BenchError, ConnectionError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0 if report.has_passed(outcome) else 1


def _measure(arguments: argparse.Namespace, scratch: Path) -> Outcome:
    parameters = _QUICK if arguments.quick else _THOROUGH
    parameters = msgspec.structs.replace(parameters, rounds=arguments.rounds or parameters.rounds)
    run = Run(parameters=parameters, scratch=scratch, progress=_print_progress, only=arguments.only)
    parts = {arguments.part, "tokens" if arguments.only else None} - {None} or set(_PARTS)
    this_machine = machine.describe(scratch)
    if arguments.against:
        measures: list[Callable[[Run], Iterable[Verdict]]] = [partial(against.measure, revision=arguments.against)]
    elif arguments.growth:
        measures = [growth.measure]
    else:
        measures = [
            measure for part, database, measure in _ROWS if part in parts and arguments.database in (None, database)
        ]
    verdicts = [verdict for measure in measures for verdict in measure(run)]
    return Outcome(machine=this_machine, verdicts=verdicts, works=run.works, pages=run.pages)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Stoplist against bare applications, in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: an impression, not a verdict")
    parser.add_argument("--rounds", type=int, help=f"the number of rounds (default {_THOROUGH.rounds})")
    parser.add_argument("--only", choices=list(tokens.ROWS), help="measure only this row")
    parser.add_argument("--against", metavar="REV", help="compare with another revision of this repository instead")
    parser.add_argument(
        "--growth", action="store_true", help="measure ten million records against ten thousand instead"
    )
    parser.add_argument("--keep", action="store_true", help="copy the figures into docs/benchmarks.md")
    parts, databases = parser.add_mutually_exclusive_group(), parser.add_mutually_exclusive_group()
    for name, what in _PARTS.items():
        parts.add_argument(f"--{name}", dest="part", action="store_const", const=name, help=f"measure only {what}")
    for name, what in _DATABASES.items():
        databases.add_argument(f"--{name}", dest="database", action="store_const", const=name, help=what)
    arguments = parser.parse_args()
    restrictions = vars(arguments) | {"keep": False}
    if arguments.keep and any(restrictions.values()):
        parser.error("only the figures of a whole run can be kept")
    return arguments


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
