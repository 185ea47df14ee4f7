"""`stoplist export`: writes the records of an organization and channel to a file.

Source: docs/interface.md section D12.
"""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, get_args

import click

from stoplist.cli.context import CommandContext, data_dir_option, database_file, run, settings_of
from stoplist.cli.printing import json_option, print_json
from stoplist.errors import Refused, SettingsError
from stoplist.lists.exports.export import Export, ExportRequest, begin_export
from stoplist.lists.exports.file import NOUN, layout_of, write_file
from stoplist.lists.exports.layouts import LAYOUTS
from stoplist.secret_key import secret_keys
from stoplist.settings import Settings
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.erased import key_fingerprint
from stoplist.unsubscribes.model import OptOutStores, Status
from stoplist.whole_file import require_free_name

_STDOUT = "-"


@click.command("export")
@click.option("--org", "org_slug", required=True, metavar="SLUG", help="The organization.")
@click.option("--channel", required=True, type=click.Choice(list(CHANNELS)), help="The channel.")
@click.option(
    "--group",
    "group_id",
    metavar="GROUP_ID",
    help="Only what bars messages of this group: its records, and those for all groups.",
)
@click.option("--status", type=click.Choice(get_args(Status)), help="Only records with this status.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="FILE|-",
    help="The new file, or - for the standard output. A name that ends in .gz or .zst is compressed.",
)
@click.option("--format", "layout", type=click.Choice(list(LAYOUTS)), help="By default as FILE is named, else csv.")
@click.option("--history", "has_history", is_flag=True, help="Every version of the records, and who sent it.")
@data_dir_option
@json_option
def command(
    org_slug: str,
    channel: str,
    group_id: str | None,
    status: str | None,
    target: str,
    layout: str | None,
    has_history: bool,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Export opt-outs to a file, as they stand at one moment.

    FILE appears when it is complete, or not at all, and is never overwritten. Partners can go on following at the
    cursor that is printed at the end. The server may run meanwhile.
    """
    if as_json and target == _STDOUT:
        raise click.UsageError("--json is printed where --to - writes the records: name a file.")
    keys = _secret_keys(settings_of(data_dir))
    request = ExportRequest(
        org_slug=org_slug, group_id=group_id, status=status, layout=layout or layout_of(target), has_history=has_history
    )

    async def work(context: CommandContext) -> Export:
        stores = OptOutStores(database=context.database, clock=context.clock, secret_keys=keys)
        if target != _STDOUT:
            require_free_name(Path(target), NOUN)  # before the audit says that it was exported
        with _ended_by_signals():
            export = await begin_export(context.actor, stores, CHANNELS[channel], request)
            if target == _STDOUT:
                await _write_to(_stdout(), export)
            else:
                await write_file(export.parts(), Path(target))
        return export

    export = run(data_dir, work)
    if not as_json:
        _print_lines(export, target)
        return
    print_json(
        {
            "org_slug": org_slug,
            "channel": channel,
            "group_id": group_id,
            "path": str(Path(target).absolute()),
            "records": export.records,
            "next_cursor": export.next_cursor,
            **_digest_key(export),
        }
    )


def _print_lines(export: Export, target: str) -> None:
    lines = "line" if export.records == 1 else "lines"
    click.echo(f"Exported {export.records:,} {lines}{'' if target == _STDOUT else f' to {target}'}.", err=True)
    click.echo(f"next_cursor: {export.next_cursor}", err=True)
    if export.digest_key is not None:
        click.echo(f"key_fingerprint: {key_fingerprint(export.digest_key)}", err=True)


def _digest_key(export: Export) -> dict[str, str]:
    """Return the key of the digests of erased persons, and its fingerprint, if there are any."""
    if export.digest_key is None:
        return {}
    return {"digest_key": export.digest_key, "key_fingerprint": key_fingerprint(export.digest_key)}


def _secret_keys(settings: Settings) -> tuple[str, ...]:
    """Return the keys for the cursor; on SQLite the servers' key is in the data folder, as for `serve`."""
    if database_file(settings) is not None:
        return secret_keys(settings)
    if not settings.secret_keys:
        raise SettingsError(
            "An export ends with a cursor, which is made with the servers' secret key: set STOPLIST_SECRET_KEY."
        )
    return settings.secret_keys


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end the export as Ctrl+C does, so that no partial file is left."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    except asyncio.CancelledError:
        raise Refused("The export was interrupted, and nothing was written. Start it again.") from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _write_to(stream: BinaryIO, export: Export) -> None:
    try:
        async for part in export.parts():
            stream.write(part)
        stream.flush()
    except OSError as error:
        raise Refused(f"The export could not be written to the standard output: {error.strerror}.") from None


def _stdout() -> BinaryIO:
    if sys.stdout is None:
        raise Refused("The standard output is closed: open it, or name a file.")
    return sys.stdout.buffer
