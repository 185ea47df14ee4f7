"""Output of the commands: results go to stdout as lines, tables or JSON; everything else goes to stderr."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import click
import msgspec

from stoplist_client.cli.escapes import escaped, escaped_json
from stoplist_client.cli.exit_status import Failed


def print_line(line: str = "") -> None:
    """Print one line, or several, on stdout, with control characters escaped."""
    click.echo(escaped(line, keeps_lines=True))


def print_json(value: Any, *, is_indented: bool = True) -> None:
    """Print a value as JSON on stdout: indented, or on one line."""
    encoded = msgspec.json.encode(value)
    click.echo(escaped_json(msgspec.json.format(encoded) if is_indented else encoded).decode())


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows on stdout as aligned columns with these names."""
    lines = [names, *([escaped(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    for line in lines:
        print_line("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def standard_output() -> BinaryIO:
    """Return the byte stream of stdout, for large outputs. Raises Failed if stdout is closed."""
    if sys.stdout is None:
        raise Failed("Standard output is closed: open it.")
    return sys.stdout.buffer


def standard_error() -> BinaryIO | None:
    """Return the byte stream of stderr, or None if it is closed."""
    return None if sys.stderr is None else sys.stderr.buffer


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun: `1 item`, `2,000 items`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
