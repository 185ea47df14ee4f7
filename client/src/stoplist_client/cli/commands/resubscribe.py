"""`stoplist-client resubscribe`: submit consents."""

from functools import partial
from typing import Any

import click

from stoplist_client.cli.arguments import Wanted, submit_options
from stoplist_client.cli.options import Command
from stoplist_client.cli.submission import items_of_table, submit
from stoplist_client.client import Client


@click.command("resubscribe", cls=Command)
@submit_options
def command(**options: Any) -> None:
    """Submit consents: people who asked to be written to, or called, again.

    Each needs its moment, for a consent is one that you can prove: --occurred-at for all, or the column occurred_at of
    a CSV file. It wins over opt-outs from before that moment alone. The key needs the permission `resubscribe`.
    Otherwise as `stoplist-client unsubscribe`.

    \b
    Examples:
      stoplist-client resubscribe email ann@example.com --occurred-at 2026-03-01T09:30:00Z
      stoplist-client resubscribe email --csv consents.csv
    """
    wanted = Wanted(**options)
    needs_time = wanted.occurred_at is None
    if needs_time and wanted.csv_file is None:
        raise click.UsageError("Say when they consented: --occurred-at, or --csv with a column occurred_at.")
    submit(wanted, Client.resubscribe, partial(items_of_table, wanted=wanted, needs_time=needs_time, has_reason=False))
