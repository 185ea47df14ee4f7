"""`stoplist-client unsubscribe`: submit opt-outs."""

from functools import partial
from typing import Any

import click

from stoplist_client.cli.arguments import SubmitArguments, submit_options
from stoplist_client.cli.list_items import FormatOptions, ListItems
from stoplist_client.cli.options import Command
from stoplist_client.cli.submission import submit
from stoplist_client.client import Client

_REASONS = ("unsubscribe", "stop_keyword", "complaint", "bounce", "invalid_address", "manual", "legal", "import")


@click.command("unsubscribe", cls=Command)
@submit_options
@click.option(
    "--reason",
    type=click.Choice(_REASONS),
    help="Why they opted out (default: unsubscribe; in a CSV file: that of its format, or import).",
)
@click.option("--format", "format_name", metavar="NAME", help="Whose export the CSV file is (default: by its header).")
@click.option("--time-zone", metavar="NAME", help="The time zone of times without offset, such as Europe/Berlin.")
@click.option(
    "--opted-out-when",
    multiple=True,
    metavar="HEADER=VALUE",
    help="The rows that are opt-outs. Several values of a header: any of them; several headers: all of them.",
)
@click.option("--encoding", metavar="NAME", help="The encoding of the CSV file, if it is not UTF-8 or UTF-16.")
def command(
    reason: str | None,
    format_name: str | None,
    time_zone: str | None,
    opted_out_when: tuple[str, ...],
    encoding: str | None,
    **options: Any,
) -> None:
    """Submit opt-outs for one channel: email, sms or phone.

    Give the addresses as arguments, one per line on stdin, or as a column of a CSV file with a header row, which may be
    packed with gzip, zstd or zip. The column may be called address, email or phone; otherwise name it with --column.
    The columns occurred_at, reason and source are read if they exist, and the exports of the usual systems are known by
    their header. Other users of the host can see arguments, so prefer stdin or a file in scripts.

    occurred_at is when the person acted, and the latest act counts. The default is now, but not for a CSV file: it
    needs the column, or --occurred-at, which is for rows without a readable time. Sending the same items again
    is safe. Items are sent in batches of up to 10,000. An invalid item refuses its whole batch and ends the command,
    which reports the lines at fault. With --lenient, the valid items are stored, and the exit status is 3.

    \b
    Examples:
      stoplist-client unsubscribe email ann@example.com --reason complaint
      stoplist-client unsubscribe sms --all-groups < stopped.txt
      stoplist-client unsubscribe email --csv export.csv --lenient --json
      stoplist-client unsubscribe email --csv list.csv --occurred-at 2026-03-01T00:00:00Z
    """
    arguments = SubmitArguments(**options)
    formats = FormatOptions(
        format_name=format_name, time_zone=time_zone, opted_out_when=opted_out_when, encoding=encoding
    )
    formats.check(arguments)
    send = partial(Client.unsubscribe, reason=reason)
    items = ListItems(arguments, formats, reason=reason)
    submit(arguments, send, items, left_out=items)
