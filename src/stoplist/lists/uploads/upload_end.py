"""The end of an upload: its file and, some days later, its rejected rows are deleted.

Source: docs/interface.md section D12, On the pages.
"""

from typing import Any

from stoplist.actor import ADMINISTER, Actor
from stoplist.clock import DAY_MS
from stoplist.db import Database, Transaction
from stoplist.db.query import Query, load_queries
from stoplist.errors import Missing, Refused
from stoplist.lists.imports.lifecycle import ImportTaken, discard_import
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import RUNNING, STOPPED
from stoplist.lists.uploads.model import ENDED, Upload
from stoplist.lists.uploads.uploads import audit_writer
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_CANCEL_WORK = _QUERIES["cancel_work"]
_DELETE_PIECES = _QUERIES["delete_pieces"]
_DELETE_REJECTS = _QUERIES["delete_rejects"]
_END = _QUERIES["end_upload"]
_FORGET = _QUERIES["forget_upload"]
_FORGET_WORK = _QUERIES["forget_work"]
_OLD = _QUERIES["old_uploads"]
_OLD_WORK = _QUERIES["old_work"]

KEPT_DAYS = 7
# A server that was killed while it received a file leaves it like this.
_MAX_RECEIVING_MS = DAY_MS // 2
_PIECES_A_TIME = 8
_REJECTS_A_TIME = 20


async def discard_upload(actor: Actor, stores: OptOutStores, number: int, import_id: str) -> None:
    """Give up what of an uploaded file is not stored yet; delete the file and its rejected rows. May be repeated.

    The caller has authorized the actor. What was imported stays, and can still be reversed.
    """
    try:
        found = await find_import(actor, stores.database, import_id)
    except Missing:
        await end_upload(stores, number, import_id, discarded_by=actor)
    else:
        if found.state in (RUNNING, STOPPED):
            await discard_import(actor, stores, import_id)
        await end_upload(stores, number, import_id)
    await _delete(stores.database, _DELETE_REJECTS, _REJECTS_A_TIME, number, import_id)


async def abandon_upload(stores: OptOutStores, upload: Upload) -> None:
    """Leave nothing of an upload that did not arrive as a whole."""
    await end_upload(stores, upload.feed_id, upload.import_id)
    await _run(stores.database, _FORGET, feed_id=upload.feed_id, import_id=upload.import_id)


async def end_upload(
    stores: OptOutStores,
    number: int,
    import_id: str,
    *,
    cancels_work: bool = True,
    discarded_by: Actor | None = None,
) -> None:
    """Delete the file of an upload; the rejected rows are kept for some days.

    `discarded_by` discards a file whose import has not begun: the audit says so, once.
    """

    record = None
    if discarded_by is not None:
        record = await audit_writer(discarded_by, stores, "upload.discard", number, import_id)

    async def end(transaction: Transaction) -> None:
        ended = await transaction.run(_END, feed_id=number, import_id=import_id, ended_ms=stores.clock.now_ms())
        if ended and record is not None:
            await record(transaction)
        if cancels_work:
            await transaction.run(_CANCEL_WORK, feed_id=number, import_id=import_id)

    await stores.database.write(end, feed_id=number)
    await _delete(stores.database, _DELETE_PIECES, _PIECES_A_TIME, number, import_id)


async def delete_old_uploads(stores: OptOutStores) -> None:
    """Give up uploads that were not finished in time, and delete what is left of those that have ended; a chore."""
    actor = Actor(kind="system", id="uploads", may=frozenset((ADMINISTER,)))
    now_ms = stores.clock.now_ms()
    before_ms = now_ms - KEPT_DAYS * DAY_MS
    rows = await stores.database.all(_OLD, cut_off_before_ms=now_ms - _MAX_RECEIVING_MS, old_before_ms=before_ms)
    for row in rows:
        key = {"feed_id": row["feed_id"], "import_id": row["import_id"]}
        if row["state"] != ENDED:
            try:
                await discard_upload(actor, stores, row["feed_id"], row["import_id"])
            except (ImportTaken, Refused):
                continue  # it went on meanwhile: the next time
        await _delete(stores.database, _DELETE_PIECES, _PIECES_A_TIME, *key.values())
        if row["ended_ms"] is not None and row["ended_ms"] < before_ms:
            await _delete(stores.database, _DELETE_REJECTS, _REJECTS_A_TIME, *key.values())
            await _run(stores.database, _FORGET, **key)
    for row in await stores.database.all(_OLD_WORK, before_ms=before_ms):
        await _run(stores.database, _FORGET_WORK, feed_id=row["feed_id"], import_id=row["import_id"])


async def _run(database: Database, query: Query, **values: Any) -> int:
    return await database.write(lambda transaction: transaction.run(query, **values), feed_id=values["feed_id"])


async def _delete(database: Database, query: Query, most: int, number: int, import_id: str) -> None:
    while await _run(database, query, feed_id=number, import_id=import_id, most=most):
        pass
