"""`stoplist copy`: copies a whole deployment from SQLite to PostgreSQL."""

import asyncio
import gc
import sys
from pathlib import Path

import click

from stoplist.cli.context import command_actor, data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.cli.progress import ProgressDisplay, WorkProgress, minutes
from stoplist.clock import Clock
from stoplist.db.opening import sqlite_path
from stoplist.errors import Refused, SettingsError
from stoplist.maintenance.copy.copy import CopyResult, Step, copy_deployment
from stoplist.secret_key import FILE_NAME
from stoplist.settings import parse

_STEP_LABELS = {"check": "Checking what is there", "copy": "Copying", "verify": "Verifying"}


@click.command("copy")
@click.option("--from", "source", required=True, metavar="URL", help="The SQLite database: sqlite:///PATH.")
@click.option("--to", "target", required=True, metavar="URL", help="The PostgreSQL database: postgresql://….")
@click.option("--to-feeds", "feeds", metavar="URL", help="The one for the feeds, if they get a database of their own.")
@data_dir_option
@json_option
def command(source: str, target: str, feeds: str | None, data_dir: str | None, as_json: bool) -> None:
    """Copy a whole deployment from SQLite to PostgreSQL, and verify every row.

    Stop the server on the SQLite file first. The target must be an empty database with the schema of this release:
    create it with `stoplist migrate` and the same STOPLIST_ENVIRONMENT. If the copy is interrupted, run the same
    command again to continue; until it has finished, no other command works on the target. The source is only read.

    With --to-feeds the target is two empty databases, one for the accounts and one for the feeds. Create them with
    `stoplist migrate` while STOPLIST_DATABASE_URL and STOPLIST_FEEDS_URL name them.

    The tokens, keys and cursors of partners stay valid if you keep the secret key. A password in --to is visible in the
    list of processes: leave it out, and set PGPASSWORD or use ~/.pgpass.

    Example: stoplist copy --from sqlite:///data/stoplist.db --to postgresql://stoplist@db.internal/stoplist
    """
    path = _sqlite_file(source, target, feeds)
    settings = settings_of(data_dir)
    clock = Clock()
    began_ns = clock.monotonic_ns()
    result = _copy(clock, source, target, feeds)
    duration_ms = (clock.monotonic_ns() - began_ns) // 1_000_000
    if as_json:
        print_json(result._asdict() | {"duration_ms": duration_ms})
        return
    _print(result, duration_ms)
    _print_next_steps(feeds, _secret_key(path, settings.data_dir, is_set=bool(settings.secret_keys)))


def _sqlite_file(source: str, target: str, feeds: str | None) -> Path:
    """Return the SQLite file; wrong usage unless --from is SQLite, and --to and --to-feeds are PostgreSQL."""
    try:
        for label, url in (("--from", source), ("--to", target)):
            parse("DATABASE_URL", url, label=label)
        if feeds is not None:
            parse("FEEDS_URL", feeds, label="--to-feeds")
    except SettingsError as error:
        raise click.UsageError(error.text) from None
    path = sqlite_path(source)
    if path is None:
        raise click.UsageError("--from must be sqlite:///PATH. Copy PostgreSQL with its own tools, such as pg_dump.")
    if sqlite_path(target) is not None:
        raise click.UsageError("--to must be postgresql://…. To copy a SQLite file, use `stoplist backup`.")
    return path


def _progress(step: Step) -> WorkProgress:
    return WorkProgress(_STEP_LABELS[step.doing], step.rows, step.all_rows, step.table)


def _copy(clock: Clock, source: str, target: str, feeds: str | None) -> CopyResult:
    display = ProgressDisplay(clock, sys.stderr)
    # Millions of rows come and go, none of them in reference cycles; searching for cycles takes 7 % of the time.
    gc.disable()
    try:
        return asyncio.run(
            copy_deployment(
                command_actor(),
                clock,
                source_url=source,
                target_url=target,
                feeds_url=feeds,
                report=lambda step: display.report(_progress(step)),
            )
        )
    except KeyboardInterrupt:
        raise Refused("Interrupted. To continue where it stopped, run the same command again.") from None
    finally:
        gc.enable()
        display.close()


def _print(result: CopyResult, duration_ms: int) -> None:
    width = max(map(len, result.rows))
    for table, rows in result.rows.items():
        print_line(f"{table:<{width}}  {rows:>15,}")
    print_line()
    earlier = f" ({result.rows_before:,} of them by an earlier run)" if result.rows_before else ""
    duration = minutes(round(duration_ms / 1000))
    print_line(
        f"{sum(result.rows.values()):,} rows were copied{earlier} and verified in {duration}. "
        f"The environment is {result.environment}."
    )


def _print_next_steps(feeds: str | None, secret_key: str) -> None:
    print_line()
    print_line("Before you start servers on PostgreSQL, set for each of them:")
    print_line("  STOPLIST_DATABASE_URL (or _FILE)  the address of --to, with its password")
    if feeds is not None:
        print_line("  STOPLIST_FEEDS_URL (or _FILE)     the address of --to-feeds, with its password")
    print_line("  STOPLIST_LIMITS_URL               redis://… shared by all, or memory: for a single process")
    print_line(f"  {secret_key}")
    print_line("The tokens, keys and cursors of partners are then valid as before. Start no server on the SQLite file")
    print_line("again: neither database would then be complete. Keep the file as a backup of this moment.")


def _secret_key(path: Path, data_dir: Path, *, is_set: bool) -> str:
    if is_set:
        return "STOPLIST_SECRET_KEY (or _FILE)    as it is set here"
    files = [folder / FILE_NAME for folder in (data_dir, path.parent)]
    key_file = next((file.absolute() for file in files if file.exists()), None)
    return f"STOPLIST_SECRET_KEY_FILE          {key_file or f'the {FILE_NAME} of the data folder of the old server'}"
