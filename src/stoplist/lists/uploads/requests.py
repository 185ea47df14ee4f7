"""The requests of people about an uploaded file and its import. They return at once; a server does the work.

Source: docs/interface.md section D12, On the pages.
"""

import msgspec

from stoplist.actor import ADMINISTER, Actor
from stoplist.db import Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Missing, Refused
from stoplist.lists.imports.lifecycle import begin_import, stop_import
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import DISCARDED, DONE, REVERSED, REVERSING, RUNNING, STOPPED, Import
from stoplist.lists.uploads.model import (
    CHECK,
    COUNT,
    IMPORT,
    REVERSE,
    CheckResult,
    Upload,
    UploadOptions,
    Work,
    WorkResult,
)
from stoplist.lists.uploads.uploads import is_ready
from stoplist.lists.uploads.work import cancel_work, find_work, request_work, set_result
from stoplist.organizations.store import require_admin_of
from stoplist.organizations.target import find_target_of_person
from stoplist.records.reversal import require_recent
from stoplist.records.reversal_plan import Reversal
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.model import OptOutStores

_SET_OPTIONS = load_queries(__package__)["set_upload_options"]
_BUSY = "A server is working on it. Wait until that has ended, or discard the upload."


async def set_options(
    actor: Actor,
    stores: OptOutStores,
    upload: Upload,
    options: UploadOptions,
    *,
    org_slug: str,
    header: tuple[str, ...],
) -> None:
    """Store what the person says about the file; an earlier check no longer counts.

    Missing and Forbidden as for an import; Refused for a group that is not in use (`target`), and if the import began.
    """
    if options.target:
        await find_target_of_person(actor, stores.database, org_slug=org_slug, group_id=options.group_id)
    await _refuse_begun(stores, upload)
    is_known = await find_work(stores.database, upload.feed_id, upload.import_id) is not None

    async def change(transaction: Transaction) -> None:
        if not await set_result(transaction, upload.feed_id, upload.import_id, WorkResult()) and is_known:
            raise Refused(_BUSY)
        await transaction.run(
            _SET_OPTIONS,
            feed_id=upload.feed_id,
            import_id=upload.import_id,
            options=json_text(msgspec.to_builtins(options)),
            header=json_text(header),
        )

    await stores.database.write(change, feed_id=upload.feed_id)


async def request_check(actor: Actor, stores: OptOutStores, upload: Upload) -> None:
    """Ask for a dry run of the whole file. Refused while something else is being done."""
    if not upload.options.target:
        raise Refused("Choose which messages the people opted out of.", field="target")
    await _refuse_begun(stores, upload)
    await _request(actor, stores, CHECK, number=upload.feed_id, import_id=upload.import_id, result=WorkResult())


async def start_import(
    actor: Actor, stores: OptOutStores, channel: Channel, upload: Upload, *, org_slug: str
) -> Import:
    """Begin the import of a file that was checked; a server stores its rows.

    Refused without a check of these options, for bad rows if the options are strict, and where an unfinished import has
    stored a part of the file.
    """
    target = await find_target_of_person(
        actor, stores.database, org_slug=org_slug, group_id=upload.options.group_id or None
    )
    await _refuse_begun(stores, upload)
    check = await _required_check(stores, upload)
    result = WorkResult(check=check)

    async def also(transaction: Transaction) -> None:
        is_requested = await request_work(
            transaction,
            actor,
            stores.clock,
            IMPORT,
            number=upload.feed_id,
            import_id=upload.import_id,
            result=result,
            total=check.counts.rows,
        )
        if not is_requested:
            raise Refused(_BUSY)

    return await begin_import(
        actor,
        stores,
        channel,
        target,
        all_groups=upload.options.group_id is None,
        file_name=upload.file_name,
        options=upload.options.for_import(stores.clock.now_ms()),
        import_id=upload.import_id,
        also=also,
    )


async def stop_uploaded(actor: Actor, stores: OptOutStores, found: Import) -> None:
    """Stop a running import after the part in progress."""
    require_admin_of(actor, found.org_slug)
    if found.state != RUNNING:
        raise Refused(f"The import is {found.state}, so there is nothing to stop.")
    await stop_import(stores, found)
    await stores.database.write(
        lambda transaction: cancel_work(transaction, found.feed_id, found.import_id), feed_id=found.feed_id
    )


async def resume_uploaded(actor: Actor, stores: OptOutStores, found: Import, upload: Upload | None) -> None:
    """Let a server go on with a stopped import whose file is still there."""
    require_admin_of(actor, found.org_slug)
    if found.state not in (RUNNING, STOPPED) or not is_ready(upload):
        raise Refused("The uploaded file is no longer there, so the import cannot go on.")
    work = await find_work(stores.database, found.feed_id, found.import_id)
    result = WorkResult(check=None if work is None else work.result.check)
    await _request(actor, stores, IMPORT, number=found.feed_id, import_id=found.import_id, result=result)


async def request_reversal_counts(actor: Actor, stores: OptOutStores, found: Import) -> None:
    """Ask for the counts of a reversal; administrators alone."""
    actor.require_administrator()
    if found.state not in (DONE, STOPPED, DISCARDED, REVERSING):
        raise Refused(f"The import is {found.state}. Stop it first." if found.state == RUNNING else "It is reversed.")
    require_recent(stores, found.started_ms)
    check = await _check_of(stores, found)
    await _request(
        actor, stores, COUNT, number=found.feed_id, import_id=found.import_id, result=WorkResult(check=check)
    )


async def request_reversal(actor: Actor, stores: OptOutStores, found: Import, *, expected: Reversal) -> None:
    """Ask for the reversal of an import whose counts the actor was shown; administrators alone."""
    actor.require_administrator()
    if found.state in (RUNNING, REVERSED):
        raise Refused(f"The import is {found.state}, so it cannot be reversed now.")
    require_recent(stores, found.started_ms)
    work = await find_work(stores.database, found.feed_id, found.import_id)
    counted = None if work is None else work.result.reversal
    if found.state != REVERSING and (counted is None or not counted.agrees_with(expected)):
        raise Refused("The counts to confirm are missing. Count again, check the counts and confirm again.")
    result = WorkResult(check=None if work is None else work.result.check, reversal=counted)
    await _request(
        actor,
        stores,
        REVERSE,
        number=found.feed_id,
        import_id=found.import_id,
        result=result,
        total=found.counts.created + found.counts.updated,
    )


async def _check_of(stores: OptOutStores, found: Import) -> CheckResult | None:
    work = await find_work(stores.database, found.feed_id, found.import_id)
    return None if work is None else work.result.check


async def _request(
    actor: Actor, stores: OptOutStores, work: Work, *, number: int, import_id: str, result: WorkResult, total: int = 0
) -> None:
    async def request(transaction: Transaction) -> bool:
        return await request_work(
            transaction, actor, stores.clock, work, number=number, import_id=import_id, result=result, total=total
        )

    if not await stores.database.write(request, feed_id=number):
        raise Refused(_BUSY)


async def _required_check(stores: OptOutStores, upload: Upload) -> CheckResult:
    """Return the result of the check that allows the import to begin; Refused if there is none."""
    work = await find_work(stores.database, upload.feed_id, upload.import_id)
    check = None if work is None or work.work is not None else work.result.check
    if check is None or not upload.options.target:
        raise Refused("Check the file first, with the choices as they are now.")
    if upload.options.is_strict and check.counts.bad_rows:
        raise Refused(
            "The file has bad rows, and you chose to import it only if it has none. Correct the file and upload it "
            "again, or change that choice."
        )
    if check.taken_by is not None:
        raise Refused(f"The first {check.taken_rows:,} rows of this file were stored by the import {check.taken_by}.")
    return check


async def _refuse_begun(stores: OptOutStores, upload: Upload) -> None:
    if not is_ready(upload):
        raise Refused("The file is not there, or no longer. Upload it again.")
    admin = Actor(kind="system", id="uploads", may=frozenset((ADMINISTER,)))
    try:
        await find_import(admin, stores.database, upload.import_id)
    except Missing:
        return
    raise Refused("The import of this file has begun already.")
