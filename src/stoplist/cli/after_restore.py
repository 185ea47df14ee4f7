"""`stoplist after-restore`: to be run after a database was put back to an earlier state."""

import click

from stoplist.cli.context import Opened, data_dir_option, run
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.maintenance.after_restore import Restored, after_restore


@click.command("after-restore")
@data_dir_option
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """Refuse all cursors and tokens given out so far. To be run after a restore.

    Also after a failover that lost writes; best before the servers start. It may be repeated.

    A restored database numbers changes anew with numbers that partners have seen already: with their old cursors they
    would miss changes, so they have to read everything once more. Tokens that were revoked after the backup would work
    again, so all are revoked; partners get new ones with their keys. A key that was deactivated or changed after the
    backup is as it was before: look through `stoplist key list`.
    """

    async def work(opened: Opened) -> Restored:
        return await after_restore(opened.actor, opened.database, opened.clock)

    done = run(data_dir, work)
    if as_json:
        print_json(done._asdict())
    else:
        print_line(
            f"Refused from now on: all cursors (feeds: {done.feeds}) and all tokens (keys: {done.credentials}). "
            "Partners get new tokens with their keys, and read everything once more."
        )
