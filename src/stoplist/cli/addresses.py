"""`stoplist addresses`: applies the rules for addresses to a list, or to the stored addresses."""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import click
import msgspec
from stoplist_addresses import RULES, AddressError

from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import CommandContext, data_dir_option, run
from stoplist.cli.printing import json_option, print_line
from stoplist.errors import Refused
from stoplist.unsubscribes.changed_addresses import ChangedAddress, find_changed_addresses

STANDARD_INPUT = "-"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_UTF_8 = "The line is not UTF-8. Save the list in that encoding."
_LINES_PER_WRITE = 1000


class CheckedLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a list with its address in canonical form, or with what is wrong with it."""

    line: int
    address: str | None = None
    error: str | None = None


@click.group("addresses", cls=CommandGroup)
def command() -> None:
    """Check addresses against the rules by which Stoplist stores them.

    Stoplist stores each e-mail address and phone number in one canonical form. `check` shows that form for a list of
    your own; `changed` lists stored addresses that this release would store in another form.
    """


@command.command("check", short_help="Show how each line of a list would be stored.")
@click.argument("channel", type=click.Choice(tuple(RULES)))
@click.argument("file")
@data_dir_option
@json_option
def check(channel: str, file: str, data_dir: str | None, as_json: bool) -> None:
    """Show how each line of FILE would be stored, or what is wrong with it.

    FILE is UTF-8 text with one address per line; empty lines are skipped. `-` is the standard input. No database is
    needed or changed. The exit status is 1 if any line is wrong.

    Example: stoplist addresses check email newsletter.txt
    """
    counts: Counter[str] = Counter()
    with _open(file) as source:
        checked = _counting(_check_lines(source, RULES[channel]), counts)
        _print((_json_array_lines if as_json else _text_lines)(checked))
    count = f"{counts.total()} addresses, {counts['wrong']} of them wrong."
    if counts["wrong"]:
        raise Refused(count)
    click.echo(count, err=True)


@command.command("changed", short_help="List stored addresses that this release would write differently.")
@data_dir_option
@json_option
def changed(data_dir: str | None, as_json: bool) -> None:
    """List the stored addresses that the rules of this release would write differently.

    Run this with a new release before you start its servers, since they would no longer find these addresses. Each line
    shows the organization and channel, the address as it is stored, and its new form, or why it would no longer be
    accepted. Nothing is changed, and running servers are not slowed down.

    Example: stoplist addresses changed --json
    """

    async def work(context: CommandContext) -> Counter[str]:
        counts: Counter[str] = Counter()
        async with contextlib.aclosing(find_changed_addresses(context.actor, context.database)) as batches:
            async for count, batch, erased in batches:
                _print(_json_element_lines(batch, is_first=not counts["changed"]) if as_json else _change_lines(batch))
                counts.update(stored=count, changed=len(batch), erased=erased)
        if as_json:
            print_line("]" if counts["changed"] else "[]")
        return counts

    counts = run(data_dir, work)
    click.echo(
        f"{counts['stored']} addresses are stored, {counts['changed']} of them would be written differently.", err=True
    )
    if counts["erased"]:
        click.echo(f"{counts['erased']} more were erased, and cannot be judged.", err=True)


@contextlib.contextmanager
def _open(file: str) -> Iterator[BinaryIO]:
    try:
        if file != STANDARD_INPUT:
            with Path(file).open("rb") as source:
                yield source
        elif sys.stdin is None:
            raise Refused("The standard input is closed. Open it, or name a file.")
        else:
            yield sys.stdin.buffer
    except OSError as error:
        raise Refused(f"The list cannot be read: {error.strerror}.") from None


def _check_lines(source: Iterable[bytes], rule: Callable[[str], str]) -> Iterator[CheckedLine]:
    for number, line in enumerate(source, start=1):
        content = line.removeprefix(_BYTE_ORDER_MARK if number == 1 else b"")
        if content.strip():
            yield _check_line(number, content, rule)


def _check_line(number: int, content: bytes, rule: Callable[[str], str]) -> CheckedLine:
    try:
        return CheckedLine(number, address=rule(content.decode()))
    except UnicodeDecodeError:
        return CheckedLine(number, error=_NOT_UTF_8)
    except AddressError as error:
        return CheckedLine(number, error=str(error))


def _counting(checked: Iterable[CheckedLine], counts: Counter[str]) -> Iterator[CheckedLine]:
    for line in checked:
        counts["right" if line.error is None else "wrong"] += 1
        yield line


def _text_lines(checked: Iterable[CheckedLine]) -> Iterator[str]:
    return (f"{line.line}: {line.address or f'error: {line.error}'}" for line in checked)


def _change_lines(batch: Iterable[ChangedAddress]) -> Iterator[str]:
    return (
        f"{change.org_slug} {change.channel}: {change.address} -> {change.canonical or f'error: {change.error}'}"
        for change in batch
    )


def _json_array_lines(checked: Iterable[CheckedLine]) -> Iterator[str]:
    """Yield the lines of a JSON array, with one element in memory at a time."""
    is_empty = True
    for line in _json_element_lines(checked, is_first=True):
        is_empty = False
        yield line
    yield "[]" if is_empty else "]"


def _json_element_lines(batch: Iterable[msgspec.Struct], *, is_first: bool) -> Iterator[str]:
    """Yield the lines of a JSON array without its end; the next batch may go on."""
    for element in batch:
        yield ("[" if is_first else ",") + msgspec.json.encode(element).decode()
        is_first = False


def _print(lines: Iterator[str]) -> None:
    # Each print flushes: a million lines one by one would take a minute.
    while batch := list(islice(lines, _LINES_PER_WRITE)):
        print_line("\n".join(batch))
