"""`python -m bench`: measure, print, and write bench/results/. Exits 1 if a target is missed."""

import argparse
import sys
from pathlib import Path

from bench import machine, report, suite
from bench.feed import Scale
from bench.rounds import Pace
from bench.rows import ROWS
from bench.server import BenchError
from bench.suite import Options

_RESULTS = Path(__file__).parent / "results"
_DOCS = Path(__file__).parent.parent / "docs"
_THOROUGH = Pace(rounds=7, duration_s=1.5, warm_up_s=0.3)
_QUICK = Pace(rounds=3, duration_s=0.8, warm_up_s=0.2)


def main() -> int:
    """Run the benchmark and return the exit status."""
    arguments = _arguments()
    try:
        with suite.scratch_folder() as scratch:
            this_machine = machine.describe(scratch)
            outcome = suite.run(_options(arguments), scratch, _print_progress)
        print(report.table(outcome, this_machine))
        report.write(outcome, this_machine, _RESULTS)
        print(f"written to {_RESULTS}")
        if arguments.keep:
            report.keep(outcome, this_machine, _DOCS)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0 if report.has_passed(outcome) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Stoplist against bare applications, in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: an impression, not a verdict")
    parser.add_argument("--rounds", type=int, help=f"the number of rounds (default {_THOROUGH.rounds})")
    parser.add_argument("--only", choices=[row.key for row in ROWS], help="measure only this row")
    parser.add_argument("--keep", action="store_true", help="copy the figures into docs/benchmarks.md")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--tokens", action="store_true", help="measure only the token rows")
    parts.add_argument("--opt-outs", action="store_true", help="measure only the opt-outs")
    parts.add_argument("--scale", action="store_true", help="measure only PostgreSQL with Valkey, workers and copy")
    parts.add_argument("--pages", action="store_true", help="measure only the admin pages")
    parts.add_argument("--partner", action="store_true", help="measure only stoplist-client")
    databases = parser.add_mutually_exclusive_group()
    databases.add_argument("--sqlite", action="store_true", help="skip PostgreSQL")
    databases.add_argument("--postgresql", action="store_true", help="measure only on PostgreSQL")
    arguments = parser.parse_args()
    if arguments.keep and (
        arguments.quick
        or arguments.rounds
        or arguments.only
        or arguments.sqlite
        or arguments.postgresql
        or arguments.tokens
        or arguments.opt_outs
        or arguments.scale
        or arguments.pages
        or arguments.partner
    ):
        parser.error("only the figures of a whole run can be kept")
    return arguments


def _options(arguments: argparse.Namespace) -> Options:
    pace = _QUICK if arguments.quick else _THOROUGH
    pace = Pace(rounds=arguments.rounds or pace.rounds, duration_s=pace.duration_s, warm_up_s=pace.warm_up_s)
    parts = (arguments.tokens, arguments.opt_outs, arguments.scale, arguments.pages, arguments.partner)
    is_whole = not any(parts) and not arguments.only
    return Options(
        pace=pace,
        scale=Scale(
            pace=pace,
            records=200_000 if arguments.quick else 1_000_000,
            rounds=pace.rounds,
            pages=10 if arguments.quick else 100,
            waits_s=5.0 if arguments.quick else 15.0,
        ),
        with_tokens=is_whole or arguments.tokens or bool(arguments.only),
        with_opt_outs=is_whole or arguments.opt_outs,
        with_scale=is_whole or arguments.scale,
        with_pages=is_whole or arguments.pages,
        with_partner=is_whole or arguments.partner,
        starts=3 if arguments.quick else 7,
        copies=1 if arguments.quick else 3,
        rows=tuple(row for row in ROWS if arguments.only in (None, row.key)),
        with_sqlite=not arguments.postgresql,
        with_postgresql=not arguments.sqlite,
    )


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
