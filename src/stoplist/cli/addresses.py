"""`stoplist addresses`: what the rules for addresses make of a list, or of what is stored."""

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

from stoplist.cli.context import Opened, data_dir_option, run
from stoplist.cli.printing import json_option, print_line
from stoplist.errors import Refused
from stoplist.unsubscribes.changed_addresses import ChangedAddress, find_changed_addresses

STANDARD_INPUT = "-"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_UTF_8 = "The line is not UTF-8: save the list in that encoding."
_LINES_AT_ONCE = 1000


class Checked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a line: an address in its canonical form, or what is wrong with it."""

    line: int
    address: str | None = None
    error: str | None = None


@click.group("addresses")
def command() -> None:
    """Addresses: the one form in which Stoplist stores each e-mail address and phone number.

    `check` tells that form for a list of yours; `changed` finds what is stored in another form than it would be now.
    """


@command.command("check", short_help="Show how each line of a list would be stored.")
@click.argument("channel", type=click.Choice(tuple(RULES)))
@click.argument("file")
@data_dir_option
@json_option
def check(channel: str, file: str, data_dir: str | None, as_json: bool) -> None:
    """Show how each line of FILE would be stored, or what is wrong with it.

    A line holds one address; empty lines are skipped. FILE is in UTF-8; `-` is the standard input. No database is
    needed, and none is touched. The exit status is 1 if any line was wrong.

    Example: stoplist addresses check email newsletter.txt
    """
    counts: Counter[str] = Counter()
    with _open(file) as source:
        checked = _counted(_checked(source, RULES[channel]), counts)
        _print((_as_array if as_json else _as_lines)(checked))
    count = f"{counts.total()} addresses, {counts['wrong']} of them wrong."
    if counts["wrong"]:
        raise Refused(count)
    click.echo(count, err=True)


@command.command("changed", short_help="List stored addresses that this release writes differently.")
@data_dir_option
@json_option
def changed(data_dir: str | None, as_json: bool) -> None:
    """List the stored addresses that the rules of this release would write differently.

    To be run with a new release before its servers start: they would not find these addresses any more. Each line
    names the organization and channel, the address as it is stored, and what it would become, or why it would no
    longer be accepted. Nothing is changed, and running servers are not held up.

    Example: stoplist addresses changed --json
    """

    async def work(opened: Opened) -> Counter[str]:
        counts: Counter[str] = Counter()
        async with contextlib.aclosing(find_changed_addresses(opened.actor, opened.database)) as parts:
            async for count, some in parts:
                _print(_elements(some, is_first=not counts["changed"]) if as_json else _changes(some))
                counts.update(stored=count, changed=len(some))
        if as_json:
            print_line("]" if counts["changed"] else "[]")
        return counts

    counts = run(data_dir, work)
    click.echo(
        f"{counts['stored']} addresses are stored, {counts['changed']} of them would be written differently.", err=True
    )


@contextlib.contextmanager
def _open(file: str) -> Iterator[BinaryIO]:
    try:
        if file != STANDARD_INPUT:
            with Path(file).open("rb") as source:
                yield source
        elif sys.stdin is None:
            raise Refused("The standard input is closed: name a file, or open it.")
        else:
            yield sys.stdin.buffer
    except OSError as error:
        raise Refused(f"The list cannot be read: {error.strerror}.") from None


def _checked(source: Iterable[bytes], rule: Callable[[str], str]) -> Iterator[Checked]:
    for number, line in enumerate(source, start=1):
        content = line.removeprefix(_BYTE_ORDER_MARK if number == 1 else b"")
        if content.strip():
            yield _checked_line(number, content, rule)


def _checked_line(number: int, content: bytes, rule: Callable[[str], str]) -> Checked:
    try:
        return Checked(number, address=rule(content.decode()))
    except UnicodeDecodeError:
        return Checked(number, error=_NOT_UTF_8)
    except AddressError as error:
        return Checked(number, error=str(error))


def _counted(checked: Iterable[Checked], counts: Counter[str]) -> Iterator[Checked]:
    for each in checked:
        counts["right" if each.error is None else "wrong"] += 1
        yield each


def _as_lines(checked: Iterable[Checked]) -> Iterator[str]:
    return (f"{each.line}: {each.address or f'error: {each.error}'}" for each in checked)


def _changes(some: Iterable[ChangedAddress]) -> Iterator[str]:
    return (f"{one.org_slug} {one.channel}: {one.address} -> {one.canonical or f'error: {one.error}'}" for one in some)


def _as_array(checked: Iterable[Checked]) -> Iterator[str]:
    """The lines of a JSON array of which no more than one element is held at a time."""
    is_empty = True
    for line in _elements(checked, is_first=True):
        is_empty = False
        yield line
    yield "[]" if is_empty else "]"


def _elements(some: Iterable[msgspec.Struct], *, is_first: bool) -> Iterator[str]:
    """The lines of a JSON array as far as its end, which is not known yet."""
    for each in some:
        yield ("[" if is_first else ",") + msgspec.json.encode(each).decode()
        is_first = False


def _print(lines: Iterator[str]) -> None:
    # What is printed at once is flushed at once: a million lines one by one would take a minute.
    while some := list(islice(lines, _LINES_AT_ONCE)):
        print_line("\n".join(some))
