"""`stoplist import`: imports opt-outs from files, and resumes, shows, reverses and discards imports.

Source: docs/interface.md sections D9 and D12.
"""

import sys
from typing import Any

import click
from stoplist_addresses.lists import FORMATS, ListError

from stoplist import rfc3339
from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import CommandContext, data_dir_option, run
from stoplist.cli.import_output import IMPORT_COLUMNS, import_record, refusal_text
from stoplist.cli.import_request import ImportOutcome, ImportRequest
from stoplist.cli.import_work import begin_and_run, resume_and_run
from stoplist.cli.printing import counted, is_terminal, json_option, print_line, print_record, print_records
from stoplist.cli.progress import ProgressDisplay, WorkProgress
from stoplist.cli.reversal_dialog import confirm_reversal, reversal_summary
from stoplist.errors import Missing, Refused
from stoplist.lists.imports.lifecycle import discard_import
from stoplist.lists.imports.listing import find_import, list_imports
from stoplist.lists.imports.model import DISCARDED, REVERSED, Import, State
from stoplist.lists.imports.reversal import count_import_reversal, reverse_import
from stoplist.lists.uploads.upload_end import discard_upload, end_upload
from stoplist.lists.uploads.uploads import find_upload_place
from stoplist.records.reversal_plan import Reversal
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import OPT_OUT_REASONS, OptOutStores

_NOW = "now"


@click.group("import", cls=CommandGroup)
def command() -> None:
    """Import opt-outs from a file of another system, or reverse such an import.

    An import never undoes what a person did later: the later act wins, as for partners.
    """


def _pair(_context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} has no `=`.", param=option)
    return tuple((name.strip(), text.strip()) for name, _, text in (value.partition("=") for value in values))


def _moment(_context: click.Context, option: click.Parameter, value: str | None) -> str | int | None:
    if value is None or value == _NOW:
        return value
    at_ms = rfc3339.parse_ms(value)
    if at_ms is None:
        raise click.BadParameter(
            f"{value!r} is neither a time such as 2026-03-01T09:30:00Z nor `{_NOW}`.", param=option
        )
    return at_ms


@command.command("run", short_help="Store the opt-outs of a file.")
@click.argument("file")
@click.option("--org", "org_slug", required=True, metavar="SLUG", help="The organization.")
@click.option("--channel", required=True, type=click.Choice(tuple(CHANNELS)), help="What the addresses are.")
@click.option("--group", "group_id", metavar="GROUP_ID", help="The group that the people opted out of.")
@click.option("--all-groups", is_flag=True, help="The people opted out of every message of the organization.")
@click.option(
    "--as-of",
    metavar="TIME|now",
    callback=_moment,
    help="When the list was true: the time of rows without one, such as 2026-03-01T09:30:00Z.",
)
@click.option(
    "--format", "format_name", type=click.Choice([each.name for each in FORMATS]), help="Default: known by the header."
)
@click.option("--time-zone", metavar="NAME", help="Zone of times without an offset, such as Europe/Berlin.")
@click.option(
    "--column", "columns", multiple=True, callback=_pair, metavar="FIELD=HEADER", help="Such as address=E-mail."
)
@click.option(
    "--opted-out-when",
    multiple=True,
    callback=_pair,
    metavar="HEADER=VALUE",
    help="Take only rows with this value. Several values of one header: any; several headers: all.",
)
@click.option("--encoding", metavar="NAME", help="Default: UTF-8, or UTF-16 with a byte order mark.")
@click.option("--reason", type=click.Choice(OPT_OUT_REASONS), help="For rows without a known reason. Default: import.")
@click.option("--source", metavar="TEXT", help="For rows without a source.")
@click.option("--rejects", metavar="FILE", help="Write the rows that are left out, with their errors.")
@click.option("--dry-run", is_flag=True, help="Only go through the file and show what would happen.")
@click.option("--strict", is_flag=True, help="Store nothing if any row is bad.")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask first. Required without a terminal.")
@data_dir_option
@json_option
def run_(
    file: str,
    org_slug: str,
    channel: str,
    group_id: str | None,
    all_groups: bool,
    as_of: str | int | None,
    format_name: str | None,
    time_zone: str | None,
    columns: tuple[tuple[str, str], ...],
    opted_out_when: tuple[tuple[str, str], ...],
    encoding: str | None,
    reason: str | None,
    source: str | None,
    rejects: str | None,
    dry_run: bool,
    strict: bool,
    is_confirmed: bool,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Store the opt-outs of FILE (`-`: standard input) in one organization, channel and group.

    FILE is CSV with a header, or text with one address per line; gzip, zstd and zip are unpacked. The exports of usual
    systems are known by their headers. On a terminal the whole file is checked first, and you are asked; rows that
    cannot be read are left out and counted. Ctrl+C stops after the part in progress; `stoplist import resume` goes on.

    Example: stoplist import run export.csv --org acme --channel email --all-groups --as-of 2026-03-01T00:00:00Z
    """
    if all_groups == (group_id is not None):
        raise click.UsageError("Say which messages the people opted out of: --group GROUP_ID, or --all-groups.")
    if len(dict(columns)) < len(columns):
        raise click.UsageError("--column names two columns for one field: say which one holds it.")
    if strict and file == "-":
        raise click.UsageError("--strict reads the file twice, so it needs a file: `-` can be read only once.")
    if not (is_confirmed or dry_run) and (file == "-" or not (is_terminal(sys.stdin) and is_terminal(sys.stderr))):
        raise Refused("Nothing was stored: without a terminal, confirm with --yes, or try --dry-run first.")
    request = ImportRequest(
        file=file,
        org_slug=org_slug,
        channel=CHANNELS[channel],
        group_id=group_id,
        as_of=as_of,
        format=format_name,
        time_zone=time_zone,
        columns=dict(columns),
        opted_out_when=opted_out_when,
        encoding=encoding,
        reason=reason,
        source=source,
        rejects=rejects,
        is_dry_run=dry_run,
        is_strict=strict,
        is_confirmed=is_confirmed,
    )
    _work(data_dir, lambda context: begin_and_run(context, request), as_json=as_json)


@command.command("resume")
@click.argument("import_id")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--rejects", metavar="FILE", help="Write the rows that are left out, with their errors.")
@data_dir_option
@json_option
def resume(import_id: str, file: str, rejects: str | None, data_dir: str | None, as_json: bool) -> None:
    """Go on with an import that was stopped, at the next row of the same FILE.

    FILE must be unchanged up to that row. Refused while a process works on the import: one that was killed is taken
    for alive for up to a minute.
    """
    _work(data_dir, lambda context: _resume(context, import_id, file, rejects), as_json=as_json)


@command.command("list")
@click.option("--org", "org_slug", metavar="SLUG", help="Only imports into this organization.")
@data_dir_option
@json_option
def list_(org_slug: str | None, data_dir: str | None, as_json: bool) -> None:
    """List the imports, the newest first."""
    found = run(data_dir, lambda context: list_imports(context.actor, context.database, org_slug=org_slug))
    print_records(
        [import_record(each) for each in found], columns=IMPORT_COLUMNS, as_json=as_json, if_empty="No imports."
    )


@command.command("show")
@click.argument("import_id")
@data_dir_option
@json_option
def show(import_id: str, data_dir: str | None, as_json: bool) -> None:
    """Show an import and its counts."""
    found = run(data_dir, lambda context: find_import(context.actor, context.database, import_id))
    print_record(import_record(found), as_json=as_json)


@command.command("reverse")
@click.argument("import_id")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask. Required without a terminal.")
@data_dir_option
@json_option
def reverse_(import_id: str, is_confirmed: bool, data_dir: str | None, as_json: bool) -> None:
    """Reverse an import: all that it stored, the newest first.

    Each record returns to its former state. A record that did not exist before is withdrawn (reason `correction`:
    no consent), and any opt-out still wins over it. Records that were sent again or changed since are left out. The
    counts are shown first. If it is interrupted, the same command goes on.
    """
    expected = None if is_confirmed else _confirm(import_id, data_dir)
    found, total = run(data_dir, lambda context: _reverse(context, import_id, expected))
    if as_json:
        print_record(import_record(found), as_json=True)
    else:
        print_line(reversal_summary(total, noun="import"))


@command.command("discard")
@click.argument("import_id")
@data_dir_option
@json_option
def discard(import_id: str, data_dir: str | None, as_json: bool) -> None:
    """Give up what an import has not stored yet, and delete its file if it was uploaded on the pages.

    What was stored stays, and `stoplist import reverse` can still take it back.
    """
    found = run(data_dir, lambda context: _discard(context, import_id))
    if as_json:
        record = {"import_id": import_id, "state": DISCARDED} if found is None else import_record(found)
        print_record(record, as_json=True)
    elif found is None:
        print_line("Discarded. The uploaded file was deleted; nothing of it was imported.")
    else:
        print_line(f"Discarded. It had taken {counted(found.counts.rows, 'row')}; what it stored stays.")


async def _resume(context: CommandContext, import_id: str, file: str, rejects: str | None) -> ImportOutcome:
    """Go on with an import; once it is done, delete the file if it was uploaded on the pages."""
    outcome = await resume_and_run(context, import_id, file, rejects)
    uploaded = await find_upload_place(context.database, import_id)
    if uploaded is not None and not outcome.status:
        await end_upload(_stores(context), uploaded.feed_id, import_id)
    return outcome


async def _discard(context: CommandContext, import_id: str) -> Import | None:
    """Discard an import and its uploaded file; return None if the import had not begun."""
    uploaded = await find_upload_place(context.database, import_id)
    if uploaded is None:
        return await discard_import(context.actor, _stores(context), import_id)
    await discard_upload(context.actor, _stores(context), uploaded.feed_id, import_id)
    try:
        return await find_import(context.actor, context.database, import_id)
    except Missing:
        return None


def _work(data_dir: str | None, work: Any, *, as_json: bool) -> None:
    try:
        outcome = run(data_dir, work)
    except ListError as error:
        if error.is_usage:
            raise click.UsageError(refusal_text(error)) from None
        raise Refused(refusal_text(error)) from None
    outcome.print(as_json=as_json)
    if outcome.status:
        sys.exit(outcome.status)


def _confirm(import_id: str, data_dir: str | None) -> Reversal | None:
    state, counts = run(data_dir, lambda context: _count(context, import_id))
    # The first reversal ends the import, also if none of its records is taken back.
    return confirm_reversal(counts, changes_nothing_else=state == REVERSED)


async def _count(context: CommandContext, import_id: str) -> tuple[State, Reversal]:
    found = await find_import(context.actor, context.database, import_id)
    return found.state, await count_import_reversal(context.actor, _stores(context), found)


async def _reverse(context: CommandContext, import_id: str, expected: Reversal | None) -> tuple[Import, Reversal]:
    found = await find_import(context.actor, context.database, import_id)
    changes = found.counts.created + found.counts.updated
    display, total = ProgressDisplay(context.clock, sys.stderr), Reversal()
    try:
        async for total in reverse_import(context.actor, _stores(context), import_id, expected=expected):
            done = total.changes + total.left_out + total.taken_back
            display.report(WorkProgress("Taking back", done, max(done, changes)))
    finally:
        display.close()
    return await find_import(context.actor, context.database, import_id), total


def _stores(context: CommandContext) -> OptOutStores:
    return OptOutStores(
        database=context.database, clock=context.clock, secret_keys=(), history_days=context.history_days
    )
