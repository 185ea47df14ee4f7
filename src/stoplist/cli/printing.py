"""How commands print what they have: tables and lists for people, JSON for programs."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec

from stoplist import log
from stoplist.errors import Refused

Record = Mapping[str, Any]


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`, for every command that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def print_line(line: str = "") -> None:
    """One line; Refused when it cannot be written, for a secret may have been in it."""
    try:
        click.echo(line)
    except OSError as error:
        _forget_output()
        raise Refused(
            f"The output could not be written ({error.strerror}); what was asked for has been done. "
            "A secret that was lost so is replaced by `stoplist key rotate-secret`."
        ) from None


def print_record(record: Record, *, as_json: bool) -> None:
    """One thing: a line a field, or a JSON object."""
    if as_json:
        print_json(record)
        return
    width = max(map(len, record))
    for name, value in record.items():
        print_line(f"{name:<{width}}  {_shown(value)}")


def print_records(records: Sequence[Record], *, columns: Iterable[str], as_json: bool, none: str) -> None:
    """Many things: a table of `columns`, or a JSON array of all fields. `none` is said when there are none."""
    if as_json:
        print_json(records)
        return
    if not records:
        print_line(none)
        return
    names = list(columns)
    rows = [names, *([_shown(record[name]) for name in names] for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    for row in rows:
        print_line("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def print_json(value: Any) -> None:
    """JSON for programs, indented for whoever looks."""
    print_line(msgspec.json.format(msgspec.json.encode(value)).decode())


def must_show_secret() -> None:
    """Refuse before a secret is made that nobody would see."""
    if sys.stdout is None:
        raise Refused("The standard output is closed, and a secret is shown only once: open it.")


def rfc3339(at_ms: int | None) -> str | None:
    """A time as the API writes it: `2026-03-01T09:30:00.000Z`; None stays None."""
    return None if at_ms is None else log.rfc3339(at_ms)


def _forget_output() -> None:
    # What is left in the buffer would be tried again at the end of the process, and fail as loudly as it can.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value))
    return "-" if value is None else str(value)
