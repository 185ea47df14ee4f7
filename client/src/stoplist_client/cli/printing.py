"""How commands print: stdout has what was asked for, as lines and tables or as JSON; stderr has the rest."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import click
import msgspec

from stoplist_client.cli.exit_status import Failed


def print_line(line: str = "") -> None:
    """One line on stdout."""
    click.echo(line)


def print_json(value: Any, *, is_indented: bool = True) -> None:
    """JSON for programs, indented for whoever looks; or on one line."""
    encoded = msgspec.json.encode(value)
    click.echo((msgspec.json.format(encoded) if is_indented else encoded).decode())


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table under these names."""
    lines = [names, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    for line in lines:
        print_line("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def standard_output() -> BinaryIO:
    """The bytes of stdout, for what is printed by the thousand."""
    if sys.stdout is None:
        raise Failed("The standard output is closed: open it.")
    return sys.stdout.buffer


def standard_error() -> BinaryIO | None:
    """The bytes of stderr; None where it is closed."""
    return None if sys.stderr is None else sys.stderr.buffer


def counted(number: int, noun: str) -> str:
    """`1 item`, `2,000 items`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
