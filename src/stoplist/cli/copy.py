"""`stoplist copy`: copies a whole deployment from SQLite to PostgreSQL."""

import asyncio
import contextlib
import gc
import shutil
import sys
from pathlib import Path
from typing import TextIO

import click

from stoplist.cli.context import command_actor, data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.clock import Clock
from stoplist.db.opening import sqlite_path
from stoplist.errors import Refused, SettingsError
from stoplist.maintenance.copy.copy import CopyResult, Step, copy_deployment
from stoplist.secret_key import FILE_NAME
from stoplist.settings import parse

_BAR_NS = 100_000_000
_LINE_NS = 5_000_000_000
_STEP_LABELS = {"check": "Checking what is there", "copy": "Copying", "verify": "Verifying"}


@click.command("copy")
@click.option("--from", "source", required=True, metavar="URL", help="The SQLite database: sqlite:///PATH.")
@click.option("--to", "target", required=True, metavar="URL", help="The PostgreSQL database: postgresql://….")
@data_dir_option
@json_option
def command(source: str, target: str, data_dir: str | None, as_json: bool) -> None:
    """Copy a whole deployment from SQLite to PostgreSQL, and verify every row.

    Stop the server on the SQLite file first. The target must be an empty database with the schema of this release:
    create it with `stoplist migrate` and the same STOPLIST_ENVIRONMENT. If the copy is interrupted, run the same
    command again to continue; until it has finished, no other command works on the target. The source is only read.

    The tokens, keys and cursors of partners stay valid if you keep the secret key. A password in --to is visible in the
    list of processes: leave it out, and set PGPASSWORD or use ~/.pgpass.

    Example: stoplist copy --from sqlite:///data/stoplist.db --to postgresql://stoplist@db.internal/stoplist
    """
    path = _sqlite_file(source, target)
    settings = settings_of(data_dir)
    clock = Clock()
    began_ns = clock.monotonic_ns()
    result = _copy(clock, source, target)
    duration_ms = (clock.monotonic_ns() - began_ns) // 1_000_000
    if as_json:
        print_json(result._asdict() | {"duration_ms": duration_ms})
        return
    _print(result, duration_ms)
    _print_next_steps(_secret_key(path, settings.data_dir, is_set=bool(settings.secret_keys)))


def _sqlite_file(source: str, target: str) -> Path:
    """Return the SQLite file; wrong usage unless --from is SQLite and --to is PostgreSQL."""
    try:
        for label, url in (("--from", source), ("--to", target)):
            parse("DATABASE_URL", url, label=label)
    except SettingsError as error:
        raise click.UsageError(error.text) from None
    path = sqlite_path(source)
    if path is None:
        raise click.UsageError("--from must be sqlite:///PATH. Copy PostgreSQL with its own tools, such as pg_dump.")
    if sqlite_path(target) is not None:
        raise click.UsageError("--to must be postgresql://…. To copy a SQLite file, use `stoplist backup`.")
    return path


def _copy(clock: Clock, source: str, target: str) -> CopyResult:
    display = ProgressDisplay(clock, sys.stderr)
    # Millions of rows come and go, none of them in reference cycles; searching for cycles takes 7 % of the time.
    gc.disable()
    try:
        return asyncio.run(
            copy_deployment(command_actor(), clock, source_url=source, target_url=target, report=display.report)
        )
    except KeyboardInterrupt:
        raise Refused("Interrupted. To continue where it stopped, run the same command again.") from None
    finally:
        gc.enable()
        display.close()


class ProgressDisplay:
    """Shows the progress on stderr: a bar on a terminal, otherwise a line every few seconds."""

    def __init__(self, clock: Clock, stream: TextIO | None) -> None:
        self._clock, self._stream = clock, stream
        self._is_terminal = stream is not None and stream.isatty()
        self._pause_ns = _BAR_NS if self._is_terminal else _LINE_NS
        self._began: tuple[Step, int] | None = None
        self._last_shown: tuple[Step, int] | None = None

    def report(self, step: Step) -> None:
        """Show this step, unless one was shown just now. The first and last step of each kind are always shown."""
        now_ns = self._clock.monotonic_ns()
        if self._began is None or self._began[0].doing != step.doing:
            self._began, self._last_shown = (step, now_ns), None
        if self._last_shown is not None:
            is_first_at_end = step.rows == step.all_rows != self._last_shown[0].rows
            if now_ns - self._last_shown[1] < self._pause_ns and not is_first_at_end:
                return
        self._last_shown = step, now_ns
        first, began_ns = self._began
        self._write(progress_line(step, rows_since=step.rows - first.rows, elapsed_ns=now_ns - began_ns))

    def close(self) -> None:
        """End the progress line, so that the next output begins on a new line."""
        if self._is_terminal and self._began:
            self._send("\n")

    def _write(self, line: str) -> None:
        # A line that wraps could not be overwritten.
        width = shutil.get_terminal_size().columns - 1
        self._send(f"\r{line[:width]}\x1b[K" if self._is_terminal else f"{line}\n")

    def _send(self, text: str) -> None:
        # A closed stderr must not stop the copy.
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()


def progress_line(step: Step, *, rows_since: int, elapsed_ns: int) -> str:
    """Return a line such as `Copying 52% [#####     ] 520,000 of 1,000,000 rows, 98,000 rows/s, 0:05 left (audit)`."""
    share = step.rows / step.all_rows if step.all_rows else 1.0
    bar = ("#" * round(10 * share)).ljust(10)
    text = f"{_STEP_LABELS[step.doing]} {share:.0%} [{bar}] {step.rows:,} of {step.all_rows:,} rows"
    if rows_since > 0 and elapsed_ns > 0:
        rate = rows_since / elapsed_ns * 1_000_000_000
        text += f", {rate:,.0f} rows/s, {_minutes(round((step.all_rows - step.rows) / rate))} left"
    return f"{text} ({step.table})"


def _minutes(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _print(result: CopyResult, duration_ms: int) -> None:
    width = max(map(len, result.rows))
    for table, rows in result.rows.items():
        print_line(f"{table:<{width}}  {rows:>15,}")
    print_line()
    earlier = f" ({result.rows_before:,} of them by an earlier run)" if result.rows_before else ""
    duration = _minutes(round(duration_ms / 1000))
    print_line(
        f"{sum(result.rows.values()):,} rows were copied{earlier} and verified in {duration}. "
        f"The environment is {result.environment}."
    )


def _print_next_steps(secret_key: str) -> None:
    print_line()
    print_line("Before you start servers on PostgreSQL, set for each of them:")
    print_line("  STOPLIST_DATABASE_URL (or _FILE)  the address of --to, with its password")
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
