"""The arguments and options of `unsubscribe` and `resubscribe`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stoplist_client.cli.csv_table import delimiter_option
from stoplist_client.cli.options import (
    FILE_PATH,
    channel_argument,
    common_options,
    group_option,
    json_option,
    org_option,
    parse_time,
)
from stoplist_client.model import Channel
from stoplist_client.redacted import Redacted

F = TypeVar("F", bound=Callable[..., Any])

NOW = "now"
"""The word that `--occurred-at` accepts for opt-outs instead of a time."""


class SubmitArguments(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The command line of `unsubscribe` or `resubscribe`. Fields are named like the options."""

    channel: Channel
    addresses: tuple[str, ...]
    csv_file: Path | None
    column: tuple[str, ...]
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
        """Raise UsageError if options contradict each other."""
        if self.addresses and self.csv_file:
            raise click.UsageError("Give addresses or --csv, not both.")
        if self.group and self.all_groups:
            raise click.UsageError("Use --group or --all-groups, not both.")
        if not self.csv_file and (self.column or self.delimiter):
            raise click.UsageError("--column and --delimiter can only be used with --csv.")


def _parse_time_or_now(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return value if value == NOW else parse_time(context, param, value)


def submit_options(command: F) -> F:
    """Add the arguments and options of SubmitArguments."""
    for option in reversed(
        (
            channel_argument,
            click.argument("addresses", nargs=-1, metavar="[ADDRESS]..."),
            click.option("--csv", "csv_file", type=FILE_PATH, metavar="FILE", help="Read a CSV file; - is stdin."),
            click.option(
                "--column",
                multiple=True,
                metavar="[FIELD=]NAME",
                help="The column of a field (default: address): its name, or its number from 1.",
            ),
            delimiter_option,
            org_option,
            group_option,
            click.option("--all-groups", is_flag=True, help="All messages of the organization on this channel."),
            click.option(
                "--occurred-at",
                callback=_parse_time_or_now,
                metavar="TIME",
                help="When the people acted, such as 2026-03-01T09:30:00Z. An opt-out can also be of `now`.",
            ),
            click.option("--source", metavar="TEXT", help="Where they acted, in up to 200 characters."),
            click.option("--lenient", is_flag=True, help="Store the valid items even if others are refused."),
            json_option,
            common_options,
        )
    ):
        command = option(command)
    return command
