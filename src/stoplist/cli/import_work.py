"""The work of `stoplist import run` and `resume`: opens the file, checks it, asks, and stores its rows."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stoplist_addresses.lists import ListError, ListFile, ListOptions, open_list, opening_list

from stoplist.cli.context import CommandContext
from stoplist.cli.import_check import ask, check_file, check_lines, check_record
from stoplist.cli.import_file import STANDARD_INPUT, RowEstimate, opened_file, shown_name
from stoplist.cli.import_output import end_lines, import_record, refusal_of_resumed
from stoplist.cli.import_request import ImportOutcome, ImportRequest
from stoplist.cli.printing import is_terminal, print_error
from stoplist.cli.progress import ProgressDisplay, WorkProgress
from stoplist.db.opening import is_served
from stoplist.errors import Refused, StoplistError, StoreUnavailable
from stoplist.lists.imports.earlier import find_unfinished, skip_rows
from stoplist.lists.imports.lifecycle import begin_import, find_resumable, take_over
from stoplist.lists.imports.list_options import list_options
from stoplist.lists.imports.listing import find_import, imports_into
from stoplist.lists.imports.model import DONE, Import, ImportOptions
from stoplist.lists.imports.part_reader import PartReader
from stoplist.lists.imports.rejects import RejectsFile
from stoplist.lists.imports.run import ImportRun, run_import
from stoplist.organizations.target import Target, find_target_of_person
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import CHANNELS, feed_id
from stoplist.unsubscribes.model import OptOutStores

STOPPED_STATUS = 3
_BAD_ROWS_STATUS = 1


async def begin_and_run(context: CommandContext, request: ImportRequest) -> ImportOutcome:
    """Check a file, ask if somebody is there, and import it; return the outcome of `stoplist import run`.

    Raise ListError if the file is refused as a whole: then nothing was stored.
    """
    target = await find_target_of_person(
        context.actor, context.database, org_slug=request.org_slug, group_id=request.group_id
    )
    options, display = request.options(context.clock.now_ms()), ProgressDisplay(context.clock, sys.stderr)
    wanted = await list_options(
        context.database, feed_id(target.organization_id, request.channel), request.channel, options
    )
    async with opened_file(request.file, display) as file:
        await _refuse_second_run(context, request, target, file)
        is_asked = not request.is_confirmed and is_terminal(sys.stdin)
        if request.is_dry_run or request.is_strict or is_asked:
            check = await check_file(context, request, target, await _open_list(file, wanted), file)
            has_failed = request.is_strict and bool(check.counts.bad)
            if request.is_dry_run:
                return ImportOutcome(
                    record=check_record(request, options, check),
                    lines=check_lines(check),
                    status=_BAD_ROWS_STATUS if has_failed else 0,
                )
            if has_failed:
                lines = ("With --strict, nothing was stored, because rows are bad:", *check_lines(check))
                raise Refused("\n".join(lines))
            if is_asked:
                ask(check)
        opened = await _open_list(file, wanted)
        with _opened_rejects(request.rejects, opened, 0) as rejects:
            begun = await begin_import(
                context.actor,
                _stores(context),
                request.channel,
                target,
                all_groups=request.group_id is None,
                file_name=shown_name(request.file),
                options=options,
                rejects_bytes=0 if rejects is None else rejects.header_bytes,
            )
            return await _run(context, begun, opened, file, rejects)


async def resume_and_run(context: CommandContext, import_id: str, path: str, rejects_path: str | None) -> ImportOutcome:
    """Go on with an import; return the outcome of `stoplist import resume`.

    Raise Refused, and leave the import as it is, if a process works on it, or if the file differs.
    """
    found = await find_resumable(context.actor, _stores(context), import_id)
    if found.state == DONE:
        return ImportOutcome(record=import_record(found), lines=["The import is done already: nothing was stored."])
    async with opened_file(path, ProgressDisplay(context.clock, sys.stderr)) as file:
        opened = await _open_resumed(context, file, found)
        await _require_same(opened, found.row_count, found, path)
        with _opened_rejects(rejects_path, opened, found.rejects_bytes) as rejects:
            taken = await take_over(context.actor, _stores(context), import_id, found=found)
            if taken.row_count != found.row_count:
                # The former process has stored another part since.
                try:
                    await _require_same(opened, taken.row_count - found.row_count, taken, path)
                except BaseException:
                    await ImportRun(context.actor, _stores(context), taken).stop()
                    raise
            if rejects is not None:
                rejects.cut_off(taken.rejects_bytes)
            return await _run(context, taken, opened, file, rejects)


async def _require_same(opened: ListFile, rows: int, found: Import, path: str) -> None:
    """Pass over the next rows, and raise Refused unless the file is, up to there, the one that was imported."""
    try:
        sha256 = await skip_rows(opened, rows)
    except ListError as error:
        raise Refused(str(error)) from None
    if found.row_count and sha256 != found.sha256:
        raise Refused(
            f"{path} differs from the file that was imported, within its first {found.row_count:,} rows, so "
            "the next row cannot be found. Resume with the same file, or discard the import and begin another."
        )


async def _run(
    context: CommandContext, begun: Import, opened: ListFile, file: BinaryIO, rejects: RejectsFile | None
) -> ImportOutcome:
    display, estimate = ProgressDisplay(context.clock, sys.stderr), RowEstimate(file)
    run = ImportRun(context.actor, _stores(context), begun)

    async def after_part(now: Import) -> None:
        display.report(WorkProgress("Importing", now.row_count, estimate.after(now.row_count)))
        if is_served(context.database_url):
            # As long as the part held the file: others wait no longer than for a partner's batch.
            await asyncio.sleep(run.stored_s)

    try:
        with _stopping() as is_stopping:
            reader = PartReader(opened, CHANNELS[begun.channel])
            ended = await run_import(run, reader, rejects=rejects, is_stopping=is_stopping, after_part=after_part)
            if ended.state == DONE:
                display.report(WorkProgress("Importing", ended.row_count, ended.row_count))
    except (ListError, StoplistError) as error:
        display.close()
        text = refusal_of_resumed(error, begun.import_id) if isinstance(error, ListError) else error.text
        print_error(f"stoplist: {text}")
        ended = await _left(context, run)
    finally:
        display.close()
    return ImportOutcome(
        record=import_record(ended),
        lines=end_lines(ended, is_own=ended.lease_id in (None, begun.lease_id)),
        status=0 if ended.state == DONE else STOPPED_STATUS,
    )


async def _left(context: CommandContext, run: ImportRun) -> Import:
    """Return the import as it stands after this process failed; another process may have gone on with it."""
    with suppress(StoreUnavailable):
        return await find_import(context.actor, context.database, run.current.import_id)
    return run.current


async def _refuse_second_run(context: CommandContext, request: ImportRequest, target: Target, file: BinaryIO) -> None:
    """Refuse a file of which an unfinished import with the same target has taken the first rows."""
    if request.file == STANDARD_INPUT or request.is_dry_run:
        return

    async def open_file(as_imported: ImportOptions) -> ListFile:
        file.seek(0)
        options = await list_options(context.database, number, request.channel, as_imported)
        return open_list(file, options, is_examined=False)

    number = feed_id(target.organization_id, request.channel)
    imports = await imports_into(context.actor, context.database, request.channel, target)
    found = await find_unfinished(imports, open_file)
    if found is None:
        return
    first_rows = f"The first {found.row_count:,} rows of this file were stored by the import {found.import_id}"
    if found.is_held(context.clock.now_ms()):
        raise Refused(
            f"{first_rows}, which is running.", command=f"`stoplist import show {found.import_id}` shows how far it is."
        )
    raise Refused(
        f"{first_rows}, which was stopped.",
        command=f"Go on with `stoplist import resume {found.import_id} {request.file}`, "
        f"or give it up with `stoplist import discard {found.import_id}`.",
    )


@contextmanager
def _opened_rejects(path: str | None, opened: ListFile, resumed_bytes: int) -> Iterator[RejectsFile | None]:
    if path is None:
        yield None
        return
    with RejectsFile(Path(path), opened.header, resumed_bytes=resumed_bytes) as rejects:
        yield rejects


async def _open_resumed(context: CommandContext, file: BinaryIO, found: Import) -> ListFile:
    options = await list_options(context.database, found.feed_id, CHANNELS[found.channel], found.options)
    try:
        return await _open_list(file, options)
    except ListError as error:
        raise Refused(refusal_of_resumed(error, found.import_id)) from None


async def _open_list(file: BinaryIO, options: ListOptions) -> ListFile:
    """Return the list in a file, from its beginning, after going through all of it if that is needed."""
    file.seek(0)
    opened: ListFile | None = None
    for opened in opening_list(file, options):  # noqa: B007 (the last one)
        await yield_to_loop()
    assert opened is not None  # noqa: S101 (the last one is the list)
    return opened


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl+C and SIGTERM into a question that is asked after each part."""
    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    is_stopping = asyncio.Event()
    for number in signals:
        loop.add_signal_handler(number, is_stopping.set)
    try:
        yield is_stopping.is_set
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _stores(context: CommandContext) -> OptOutStores:
    return OptOutStores(database=context.database, clock=context.clock, secret_keys=())
