"""`stoplist after-restore`: makes a database that was put back to an earlier state safe to serve."""

import click

from stoplist.cli.context import CommandContext, data_dir_option, run
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.maintenance.after_restore import RestoreResult, after_restore


@click.command("after-restore")
@data_dir_option
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """Refuse all cursors and tokens given out so far. Run this after a restore.

    Run it after a failover that lost writes, too, if possible before the servers start. It may be repeated.

    A restored database gives new changes numbers that partners have already seen. With their old cursors partners would
    miss changes, so they have to read everything once more. Tokens that were revoked after the backup would work again,
    so all tokens are revoked; partners get new ones with their keys. A key that was deactivated or changed after the
    backup is as it was before: check `stoplist key list`. People who were erased after the backup are back: repeat that
    with `stoplist person erase --from FILE`.

    With STOPLIST_FEEDS_URL, groups of which the feeds have records, but which the restored accounts have lost, are
    created again under a name that says so. Every record is read for this.
    """

    async def work(context: CommandContext) -> RestoreResult:
        return await after_restore(context.actor, context.database, context.clock)

    result = run(data_dir, work)
    if as_json:
        print_json(result._asdict())
    else:
        print_line(
            f"Refused from now on: all cursors (feeds: {result.feeds}) and all tokens (keys: {result.credentials}). "
            "Partners get new tokens with their keys, and read everything once more. Repeat the erasures since the "
            "backup: stoplist person erase --from FILE."
        )
        if result.groups:
            print_line(
                f"Created again, because the restored accounts had lost them: groups: {result.groups}. Their names say "
                "so, and their ids are new: rename them, and tell the partners who send to them. The audit lists them."
            )
