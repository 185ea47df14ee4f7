"""What is said on the command line of `unsubscribe` and `resubscribe`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stoplist_client.cli.csv_table import delimiter_option
from stoplist_client.cli.options import (
    A_FILE,
    as_moment,
    channel_argument,
    common_options,
    group_option,
    json_option,
    org_option,
)
from stoplist_client.model import Channel
from stoplist_client.redacted import Redacted

F = TypeVar("F", bound=Callable[..., Any])


class Wanted(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says, in the names of its options."""

    channel: Channel
    addresses: tuple[str, ...]
    csv_file: Path | None
    column: str | None
    delimiter: str | None
    org: str | None
    group: str | None
    all_groups: bool
    occurred_at: str | None
    source: str | None
    lenient: bool
    as_json: bool
    profile_name: str | None

    def check(self) -> None:
        """Wrong usage where the options are at odds."""
        if self.addresses and self.csv_file:
            raise click.UsageError("Give addresses or --csv, not both.")
        if self.group and self.all_groups:
            raise click.UsageError("Name a --group or say --all-groups, not both.")
        if not self.csv_file and (self.column or self.delimiter):
            raise click.UsageError("--column and --delimiter go with --csv.")


def submit_options(command: F) -> F:
    """The arguments and options that Wanted has."""
    for option in reversed(
        (
            channel_argument,
            click.argument("addresses", nargs=-1, metavar="[ADDRESS]..."),
            click.option("--csv", "csv_file", type=A_FILE, metavar="FILE", help="Read a CSV file; - is stdin."),
            click.option("--column", metavar="NAME", help="The column with the addresses: its name, or number from 1."),
            delimiter_option,
            org_option,
            group_option,
            click.option("--all-groups", is_flag=True, help="Everything that the organization sends on this channel."),
            click.option(
                "--occurred-at", callback=as_moment, metavar="TIME", help="When they acted: 2026-03-01T09:30:00Z."
            ),
            click.option("--source", metavar="TEXT", help="Where it happened, in up to 200 characters."),
            click.option("--lenient", is_flag=True, help="Store the good items where others are refused."),
            json_option,
            common_options,
        )
    ):
        command = option(command)
    return command
