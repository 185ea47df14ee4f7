"""`stoplist-client look-up`: what the service knows of some addresses."""

from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec
from stoplist_addresses import RULES, AddressError

from stoplist_client.cli.address_lines import NOT_UTF_8, is_utf_8, numbered_addresses, standard_input
from stoplist_client.cli.context import client_of
from stoplist_client.cli.exit_status import end_not_all
from stoplist_client.cli.options import Command, channel_argument, common_options, group_option, json_option, org_option
from stoplist_client.cli.printing import print_line, print_table, standard_output
from stoplist_client.cli.profile_selection import load
from stoplist_client.flows.acts import ms_text
from stoplist_client.model import Channel, LookedUp, Record

_COLUMNS = ("address", "group", "status", "occurred_at", "reason", "source", "organization")


@click.command("look-up", cls=Command)
@channel_argument
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@org_option
@group_option
@json_option
@click.option("--json-lines", is_flag=True, help="Print a JSON object a line, each as soon as it is known.")
@common_options
def command(
    channel: Channel,
    addresses: tuple[str, ...],
    org: str | None,
    group: str | None,
    as_json: bool,
    json_lines: bool,
    profile_name: str | None,
) -> None:
    """Ask the service what it knows of addresses: arguments, or lines of stdin.

    This is for questions about single people: proxies may write such requests down. Before messages ask the mirror,
    with `stoplist-client check`. With --group only records that bear on it are shown: its own, and those of all groups.
    What is no address is told on stderr; it then ends with 3.

    \b
    Examples:
      stoplist-client look-up email ann@example.com
      stoplist-client look-up sms --json < numbers.txt
    """
    if as_json and json_lines:
        raise click.UsageError("Say --json or --json-lines, not both.")
    given = enumerate(addresses, 1) if addresses else numbered_addresses(standard_input("an address a line"))
    good = _Good(channel, given, "argument" if addresses else "line")
    with client_of(load(profile_name)) as client:
        found = client.look_up(channel, good, org_slug=org, group_id=group, every_group=group is None)
        if json_lines:
            _print_lines(found)
        elif as_json:
            _print_array(found)
        else:
            print_table(_COLUMNS, [row for one in found for row in _rows(one)])
    if good.refused:
        end_not_all()


class _Good:
    """The addresses that are some, lazily; the others are told, and counted."""

    def __init__(self, channel: Channel, given: Iterable[tuple[int, str]], word: str) -> None:
        self._rule, self._given, self._word = RULES[channel], given, word
        self.refused = 0

    def __iter__(self) -> Iterator[str]:
        for number, address in self._given:
            try:
                self._rule(address)
            except AddressError as error:
                self.refused += 1
                click.echo(f"{self._word} {number}: {error if is_utf_8(address) else NOT_UTF_8}", err=True)
                continue
            yield address


def _rows(one: LookedUp) -> Iterator[tuple[str, ...]]:
    if not one.records:
        yield (one.canonical, "-", "nothing known", "-", "-", "-", "-")
    for record in one.records:
        yield (
            one.canonical,
            record.group_id or "all groups",
            record.status,
            ms_text(record.occurred_at),
            record.reason,
            record.source or "-",
            record.org_slug,
        )


def _print_lines(found: Iterable[LookedUp]) -> None:
    out = standard_output()
    for one in found:
        out.write(msgspec.json.encode(_shown(one)) + b"\n")
        out.flush()


def _print_array(found: Iterable[LookedUp]) -> None:
    out = standard_output()
    before = b"[\n"
    for one in found:
        out.write(before + msgspec.json.encode(_shown(one)))
        before = b",\n"
    if before == b"[\n":
        print_line("[]")
        return
    out.write(b"\n]\n")
    out.flush()


def _shown(one: LookedUp) -> dict[str, Any]:
    return {
        "address": one.address,
        "canonical": one.canonical,
        "records": [_shown_record(record) for record in one.records],
    }


def _shown_record(record: Record) -> dict[str, Any]:
    fields = msgspec.structs.asdict(record)
    return fields | {"occurred_at": ms_text(record.occurred_at), "recorded_at": ms_text(record.recorded_at)}
