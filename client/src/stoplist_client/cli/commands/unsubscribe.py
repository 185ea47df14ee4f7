"""`stoplist-client unsubscribe`: submit opt-outs."""

from functools import partial
from typing import Any

import click

from stoplist_client.cli.arguments import SubmitArguments, submit_options
from stoplist_client.cli.options import Command
from stoplist_client.cli.submission import items_of_table, submit
from stoplist_client.client import Client

_REASONS = ("unsubscribe", "stop_keyword", "complaint", "bounce", "invalid_address", "manual", "legal", "import")


@click.command("unsubscribe", cls=Command)
@submit_options
@click.option("--reason", type=click.Choice(_REASONS), help="Why they opted out (default: unsubscribe).")
def command(reason: str | None, **options: Any) -> None:
    """Submit opt-outs for one channel: email, sms or phone.

    Give the addresses as arguments, one per line on stdin, or as a column of a CSV file with a header row. The column
    may be called address, email or phone; otherwise name it with --column. The columns occurred_at, reason and source
    are read if they exist. An empty list is not an error, but a CSV file without a header row is. Other users of the
    host can see arguments, so prefer stdin or a file in scripts.

    occurred_at is when the person acted, and the latest act counts; the default is now. Sending the same items again
    is safe. Items are sent in batches of up to 10,000. An invalid item refuses its whole batch and ends the command,
    which reports the lines at fault. With --lenient, the valid items are stored, and the exit status is 3.

    \b
    Examples:
      stoplist-client unsubscribe email ann@example.com --reason complaint
      stoplist-client unsubscribe sms --all-groups < stopped.txt
      stoplist-client unsubscribe email --csv export.csv --lenient --json
    """
    arguments = SubmitArguments(**options)
    send = partial(Client.unsubscribe, reason=reason)
    submit(arguments, send, partial(items_of_table, arguments=arguments, needs_time=False, has_reason=True))
