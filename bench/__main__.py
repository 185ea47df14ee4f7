"""`python -m bench`: measure, print, and write bench/results/. Exits 1 if a target is missed."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from bench import (
    against,
    apart,
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
from bench.product import POSTGRESQL, SQLITE, DatabaseKind
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
    rounds=3, duration_s=0.8, warm_up_s=0.2, records=200_000, grown=1_000_000, pages=10, waits_s=5.0, starts=3, copies=1
)


class _Part(msgspec.Struct, frozen=True):
    """Some of the rows, which an option of the command line measures alone."""

    what: str
    measures: Sequence[Callable[[Run, DatabaseKind], Iterable[Verdict]]]
    databases: Sequence[DatabaseKind] = (SQLITE, POSTGRESQL)


_PARTS = {
    "tokens": _Part("the token rows", [tokens.measure]),
    "opt-outs": _Part("the opt-outs", [feed.measure]),
    "scale": _Part(
        "PostgreSQL with Valkey, workers and copy", [scale.measure, copying.measure, hanging.measure], [POSTGRESQL]
    ),
    "lists": _Part("imports and exports", [imports.measure, exports.measure]),
    "links": _Part("opt-out links", [links.measure]),
    "waiting": _Part("requests that wait for a change", [waiting.measure]),
    "proof": _Part("states of feeds and positions of readers", [proof.measure]),
    "apart": _Part("feeds in a database of their own", [apart.measure], [POSTGRESQL]),
    "erased": _Part("erased persons", [erased.measure]),
    "pages": _Part("the admin pages", [pages.measure]),
    "partner": _Part("stoplist-client", [partner.measure], [SQLITE]),
}


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
    run = Run(
        parameters=parameters,
        scratch=scratch,
        progress=partial(print, file=sys.stderr, flush=True),
        only=arguments.only,
    )
    this_machine = machine.describe(scratch)
    return Outcome(machine=this_machine, verdicts=list(_verdicts(arguments, run)), works=run.works, pages=run.pages)


def _verdicts(arguments: argparse.Namespace, run: Run) -> Iterator[Verdict]:
    if arguments.against:
        yield from against.measure(run, arguments.against)
        return
    if arguments.growth:
        yield from growth.measure(run)
        return
    only = "tokens" if arguments.only else arguments.part
    for part in [_PARTS[only]] if only else _PARTS.values():
        for measure in part.measures:
            for database in part.databases:
                if arguments.database in (None, database):
                    yield from measure(run, database)


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
    for name, part in _PARTS.items():
        parts.add_argument(f"--{name}", dest="part", action="store_const", const=name, help=f"measure only {part.what}")
    for database, what in ((SQLITE, "skip PostgreSQL"), (POSTGRESQL, "measure only on PostgreSQL")):
        databases.add_argument(
            f"--{database.name.lower()}", dest="database", action="store_const", const=database, help=what
        )
    arguments = parser.parse_args()
    restrictions = vars(arguments) | {"keep": False}
    if arguments.keep and any(restrictions.values()):
        parser.error("only the figures of a whole run can be kept")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
