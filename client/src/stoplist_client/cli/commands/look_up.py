"""`stoplist-client look-up`: show the service's records for some addresses."""

from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec
from stoplist_addresses import RULES, AddressError

from stoplist_client.cli.address_lines import NOT_UTF_8, is_utf_8, numbered_addresses, standard_input
from stoplist_client.cli.context import open_client
from stoplist_client.cli.escapes import escaped_json
from stoplist_client.cli.exit_status import exit_not_all_accepted
from stoplist_client.cli.options import Command, channel_argument, common_options, group_option, json_option, org_option
from stoplist_client.cli.printing import print_line, print_table, standard_output
from stoplist_client.cli.profile_selection import load_profile
from stoplist_client.flows.acts import ms_text
from stoplist_client.model import Channel, LookedUp, Record

_COLUMNS = ("address", "group", "status", "occurred_at", "reason", "source", "organization")


@click.command("look-up", cls=Command)
@channel_argument
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@org_option
@group_option
@json_option
@click.option("--json-lines", is_flag=True, help="Print one JSON object per line, each as soon as it is known.")
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
    """Show the service's records for addresses, given as arguments or one per line on stdin.

    Use this for questions about single people, since proxies may log such requests. Before you send messages, use
    `stoplist-client check`, which asks the mirror. With --group, only records that apply to the group are shown: its
    own and those of all groups. A line that is not a valid address is reported on stderr, and the exit status is then
    3.

    \b
    Examples:
      stoplist-client look-up email ann@example.com
      stoplist-client look-up sms --json < numbers.txt
    """
    if as_json and json_lines:
        raise click.UsageError("Use --json or --json-lines, not both.")
    given = enumerate(addresses, 1) if addresses else numbered_addresses(standard_input("one address per line"))
    valid = _ValidAddresses(channel, given, "argument" if addresses else "line")
    with open_client(load_profile(profile_name)) as client:
        results = client.look_up(channel, valid, org_slug=org, group_id=group, every_group=group is None)
        if json_lines:
            _print_lines(results)
        elif as_json:
            _print_array(results)
        else:
            print_table(_COLUMNS, [row for one in results for row in _rows(one)])
    if valid.refused:
        exit_not_all_accepted()


class _ValidAddresses:
    """Yields the valid addresses lazily; reports the others on stderr, and counts them."""

    def __init__(self, channel: Channel, given: Iterable[tuple[int, str]], unit: str) -> None:
        self._rule, self._given, self._unit = RULES[channel], given, unit
        self.refused = 0

    def __iter__(self) -> Iterator[str]:
        for number, address in self._given:
            try:
                self._rule(address)
            except AddressError as error:
                self.refused += 1
                click.echo(f"{self._unit} {number}: {error if is_utf_8(address) else NOT_UTF_8}", err=True)
                continue
            yield address


def _rows(one: LookedUp) -> Iterator[tuple[str, ...]]:
    if not one.records:
        yield (one.canonical, "-", "no record", "-", "-", "-", "-")
    for record in one.records:
        yield (
            one.canonical,
            record.group_id or "all groups",
            record.status,
            ms_text(record.occurred_at),
            _reason(record),
            record.source or "-",
            record.org_slug,
        )


def _reason(record: Record) -> str:
    """Return the reason; a withdrawn opt-out is no consent, although its status is the same."""
    is_withdrawn = record.status == "resubscribed" and not record.is_consent
    return f"{record.reason} (opt-out withdrawn, no consent)" if is_withdrawn else record.reason


def _print_lines(results: Iterable[LookedUp]) -> None:
    out = standard_output()
    for one in results:
        out.write(escaped_json(msgspec.json.encode(_json_object(one))) + b"\n")
        out.flush()


def _print_array(results: Iterable[LookedUp]) -> None:
    out = standard_output()
    before = b"[\n"
    for one in results:
        out.write(before + escaped_json(msgspec.json.encode(_json_object(one))))
        before = b",\n"
    if before == b"[\n":
        print_line("[]")
        return
    out.write(b"\n]\n")
    out.flush()


def _json_object(one: LookedUp) -> dict[str, Any]:
    return {
        "address": one.address,
        "canonical": one.canonical,
        "records": [_json_record(record) for record in one.records],
    }


def _json_record(record: Record) -> dict[str, Any]:
    fields = msgspec.structs.asdict(record)
    return fields | {"occurred_at": ms_text(record.occurred_at), "recorded_at": ms_text(record.recorded_at)}
