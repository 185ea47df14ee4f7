"""Output of commands: tables and lists for people, JSON for programs."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec

from stoplist.control_characters import escaped, escaped_json
from stoplist.errors import Refused
from stoplist.rfc3339 import format_ms

Record = Mapping[str, Any]


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--json`, for every command that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def print_line(line: str = "") -> None:
    """Print one line, or several, with control characters escaped: others wrote names and labels.

    Raises Refused if they cannot be written, since they may have held a secret.
    """
    try:
        click.echo(escaped(line, keeps_lines=True))
    except OSError as error:
        _forget_output()
        raise Refused(
            f"The output could not be written ({error.strerror}), but the command was carried out. "
            "If a secret was lost, replace it with `stoplist key rotate-secret`."
        ) from None


def print_error(text: str) -> None:
    """Print a message on stderr, with control characters escaped."""
    click.echo(escaped(text, keeps_lines=True), err=True)


def print_record(record: Record, *, as_json: bool) -> None:
    """Print one record: a line per field, or a JSON object."""
    if as_json:
        print_json(record)
        return
    width = max(map(len, record))
    for name, value in record.items():
        print_line(f"{name:<{width}}  {_to_text(value)}")


def print_records(records: Sequence[Record], *, columns: Iterable[str], as_json: bool, if_empty: str) -> None:
    """Print records: a table of `columns`, or a JSON array of all fields. `if_empty` replaces an empty table."""
    if as_json:
        print_json(records)
        return
    if not records:
        print_line(if_empty)
        return
    names = list(columns)
    rows = [names, *([_to_text(record[name]) for name in names] for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    for row in rows:
        print_line("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def print_json(value: Any) -> None:
    """Print indented JSON."""
    print_line(escaped_json(msgspec.json.format(msgspec.json.encode(value)).decode()))


def require_open_stdout() -> None:
    """Raise Refused if stdout is closed, before a secret is made that could not be shown."""
    if sys.stdout is None:
        raise Refused("The standard output is closed, and a secret is shown only once. Open it.")


def is_terminal(stream: Any) -> bool:
    """Return whether a person is at this stream; False if it is closed."""
    return stream is not None and stream.isatty()


def counted(number: int, noun: str) -> str:
    """Return `1 row`, or `1,234,567 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rfc3339(at_ms: int | None) -> str | None:
    """Return a time as the API writes it, such as `2026-03-01T09:30:00.000Z`; None stays None."""
    return None if at_ms is None else format_ms(at_ms)


def _forget_output() -> None:
    # Python would write the rest of the buffer again at exit, and fail with a traceback.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_to_text, value))
    return "-" if value is None else escaped(str(value))
