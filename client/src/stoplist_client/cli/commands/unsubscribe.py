"""`stoplist-client unsubscribe`: submit opt-outs."""

from functools import partial
from typing import Any

import click

from stoplist_client.cli.arguments import Wanted, submit_options
from stoplist_client.cli.options import Command
from stoplist_client.cli.submission import items_of_table, submit
from stoplist_client.client import Client

_REASONS = ("unsubscribe", "stop_keyword", "complaint", "bounce", "invalid_address", "manual", "legal", "import")


@click.command("unsubscribe", cls=Command)
@submit_options
@click.option("--reason", type=click.Choice(_REASONS), help="Why, if it is not simply `unsubscribe`.")
def command(reason: str | None, **options: Any) -> None:
    """Submit opt-outs of one channel: email, sms or phone.

    The addresses are arguments; or lines of stdin, one an address; or a column of a CSV file with a header row. In CSV
    the column is called address, email or phone, or --column says which; columns occurred_at, reason and source are
    read where they are there. An empty list is no error; a CSV file without its header row is one. A program that
    others can watch should not put addresses into arguments.

    occurred_at is when the person acted, and decides who wins: the later act. Where nothing says it, it is now. It may
    all be sent twice. A batch of up to 10,000 items with a bad one among them is refused as a whole and ends the
    command, which tells the lines; with --lenient the good ones are stored, and it ends with 3.

    \b
    Examples:
      stoplist-client unsubscribe email ann@example.com --reason complaint
      stoplist-client unsubscribe sms --all-groups < stopped.txt
      stoplist-client unsubscribe email --csv export.csv --lenient --json
    """
    wanted = Wanted(**options)
    send = partial(Client.unsubscribe, reason=reason)
    submit(wanted, send, partial(items_of_table, wanted=wanted, needs_time=False, has_reason=True))
