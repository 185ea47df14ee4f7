"""The check of a file before `stoplist import run` stores its rows, and the question to the person who runs it."""

import sys
from typing import BinaryIO

from stoplist_addresses.lists import ListFile

from stoplist.cli.context import CommandContext
from stoplist.cli.import_file import RowEstimate, shown_name
from stoplist.cli.import_output import count_lines, count_record
from stoplist.cli.import_request import ImportRequest
from stoplist.cli.printing import print_error, rfc3339
from stoplist.cli.progress import ProgressDisplay, WorkProgress
from stoplist.cli.reversal_dialog import confirmed
from stoplist.errors import Refused
from stoplist.lists.imports.check import ListCheck
from stoplist.lists.imports.model import ImportOptions
from stoplist.lists.imports.part_reader import PartReader
from stoplist.organizations.target import Target
from stoplist.unsubscribes.model import OptOutStores


async def check_file(
    context: CommandContext, request: ImportRequest, target: Target, opened: ListFile, file: BinaryIO
) -> ListCheck:
    """Return what an import of the file would do, without storing anything."""
    group_no = target.group_no
    stores = OptOutStores(database=context.database, clock=context.clock, secret_keys=())
    check = ListCheck(context.actor, stores, request.channel, target, group_no)
    reader, estimate = PartReader(opened, request.channel), RowEstimate(file)
    display = ProgressDisplay(context.clock, sys.stderr)
    try:
        while (part := await reader.next_part()) is not None:
            await check.take(part)
            display.report(WorkProgress("Checking", check.counts.rows, estimate.after(check.counts.rows)))
        display.report(WorkProgress("Checking", check.counts.rows, check.counts.rows))
    finally:
        display.close()
    return check


def ask(check: ListCheck) -> None:
    """Show the counts; raise Refused unless they are confirmed."""
    print_error("\n".join(check_lines(check)))
    if not confirmed("Import them?"):
        raise Refused("Nothing was stored.")


def check_lines(check: ListCheck) -> list[str]:
    """Return the counts and the first bad rows, a line each."""
    lines = count_lines(check.counts, is_check=True, is_exact=check.is_exact)
    if check.first_bad:
        lines += ["The first bad rows:", *(f"  line {row.line}: {row.text}" for row in check.first_bad)]
    return lines


def check_record(request: ImportRequest, options: ImportOptions, check: ListCheck) -> dict[str, object]:
    """Return the result of a dry run as JSON shows it."""
    return {
        "import_id": None,
        "state": "checked",
        "org_slug": request.org_slug,
        "channel": request.channel.name,
        "group_id": request.group_id,
        "file_name": shown_name(request.file),
        "sha256": check.sha256,
        **count_record(check.counts),
        "as_of": rfc3339(options.as_of_ms),
        "started_at": rfc3339(options.now_ms),
        "ended_at": None,
    }
