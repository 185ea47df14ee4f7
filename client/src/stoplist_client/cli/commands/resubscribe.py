"""`stoplist-client resubscribe`: submit consents."""

from functools import partial
from typing import Any

import click

from stoplist_client.cli.arguments import NOW, SubmitArguments, submit_options
from stoplist_client.cli.options import Command
from stoplist_client.cli.submission import items_of_table, submit
from stoplist_client.client import Client


@click.command("resubscribe", cls=Command)
@submit_options
def command(**options: Any) -> None:
    """Submit consents of people who asked to receive messages or calls again.

    Each consent needs the time at which it was given, since you must be able to prove it: --occurred-at for all
    addresses, or the column occurred_at of a CSV file. A consent overrides only opt-outs from before that time. The key
    needs the permission `resubscribe`. Otherwise the command works like `stoplist-client unsubscribe`.

    \b
    Examples:
      stoplist-client resubscribe email ann@example.com --occurred-at 2026-03-01T09:30:00Z
      stoplist-client resubscribe email --csv consents.csv
    """
    arguments = SubmitArguments(**options)
    if arguments.occurred_at == NOW:
        raise click.UsageError("A consent needs the time at which it was given, which is not `now`.")
    if len(arguments.column) > 1 or any("=" in name for name in arguments.column):
        raise click.UsageError("--column of a consent names the address column alone.")
    needs_time = arguments.occurred_at is None
    if needs_time and arguments.csv_file is None:
        raise click.UsageError("A consent needs its time: add --occurred-at, or --csv with a column occurred_at.")
    submit(
        arguments,
        Client.resubscribe,
        partial(items_of_table, arguments=arguments, needs_time=needs_time),
    )
