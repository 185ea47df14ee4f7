"""`python -m bench`: measures, prints, and writes bench/results/. Exit status 1 when a target is missed."""

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
    """The exit status."""
    given = _arguments()
    try:
        with suite.scratch_folder() as scratch:
            here = machine.describe(scratch)
            outcome = suite.run(_options(given), scratch, _say)
        print(report.table(outcome, here))
        report.write(outcome, here, _RESULTS)
        print(f"written to {_RESULTS}")
        if given.keep:
            report.keep(outcome, here, _DOCS)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0 if report.is_right(outcome) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Stoplist against bare applications, in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: an impression, no verdict")
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {_THOROUGH.rounds})")
    parser.add_argument("--only", choices=[row.key for row in ROWS], help="measure this row alone")
    parser.add_argument("--keep", action="store_true", help="take the figures over into docs/benchmarks.md")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--tokens", action="store_true", help="leave the opt-outs out")
    parts.add_argument("--opt-outs", action="store_true", help="measure the opt-outs alone")
    parts.add_argument("--scale", action="store_true", help="measure PostgreSQL with Valkey, workers and copy alone")
    parts.add_argument("--pages", action="store_true", help="measure the admin pages alone")
    parts.add_argument("--partner", action="store_true", help="measure stoplist-client alone")
    databases = parser.add_mutually_exclusive_group()
    databases.add_argument("--sqlite", action="store_true", help="leave PostgreSQL out")
    databases.add_argument("--postgresql", action="store_true", help="measure on PostgreSQL alone")
    given = parser.parse_args()
    if given.keep and (
        given.quick
        or given.rounds
        or given.only
        or given.sqlite
        or given.postgresql
        or given.tokens
        or given.opt_outs
        or given.scale
        or given.pages
        or given.partner
    ):
        parser.error("only the figures of a whole run are kept")
    return given


def _options(given: argparse.Namespace) -> Options:
    pace = _QUICK if given.quick else _THOROUGH
    pace = Pace(rounds=given.rounds or pace.rounds, duration_s=pace.duration_s, warm_up_s=pace.warm_up_s)
    parts = (given.tokens, given.opt_outs, given.scale, given.pages, given.partner)
    is_whole = not any(parts) and not given.only
    return Options(
        pace=pace,
        scale=Scale(
            pace=pace,
            records=200_000 if given.quick else 1_000_000,
            rounds=pace.rounds,
            pages=10 if given.quick else 100,
            waits_s=5.0 if given.quick else 15.0,
        ),
        with_tokens=is_whole or given.tokens or bool(given.only),
        with_opt_outs=is_whole or given.opt_outs,
        with_scale=is_whole or given.scale,
        with_pages=is_whole or given.pages,
        with_partner=is_whole or given.partner,
        starts=3 if given.quick else 7,
        copies=1 if given.quick else 3,
        rows=tuple(row for row in ROWS if given.only in (None, row.key)),
        with_sqlite=not given.postgresql,
        with_postgresql=not given.sqlite,
    )


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
