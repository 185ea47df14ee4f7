"""Receives, finds and deletes uploads. They are stored in the database, so that any host can import them.

Source: docs/interface.md section D12, On the pages.
"""

from typing import Any, NamedTuple

import msgspec

from stoplist import ids
from stoplist.actor import ADMINISTER, Actor
from stoplist.audit import trail
from stoplist.clock import DAY_MS
from stoplist.control_characters import with_spaces
from stoplist.db import HEAVY_ROWS, Database, Row, Transaction
from stoplist.db.query import Query, json_text, load_queries
from stoplist.errors import Missing, Refused, TooLarge
from stoplist.lists.imports.lifecycle import ImportTaken, discard_import
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import RUNNING, STOPPED
from stoplist.lists.uploads.model import (
    ENDED,
    MAX_UNFINISHED,
    PIECE_BYTES,
    UPLOADED,
    UPLOADING,
    Upload,
    UploadOptions,
)
from stoplist.organizations.store import find_organization, require_admin_of
from stoplist.organizations.target import ALL_GROUPS, find_target_of_person
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.feed import open_feed
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_ADD_PIECE = _QUERIES["add_piece"]
_BEGIN = _QUERIES["begin_upload"]
_CANCEL_WORK = _QUERIES["cancel_work"]
_COMPLETE = _QUERIES["complete_upload"]
_DELETE_PIECES = _QUERIES["delete_pieces"]
_DELETE_REJECTS = _QUERIES["delete_rejects"]
_END = _QUERIES["end_upload"]
_EXTEND = _QUERIES["extend_upload"]
_FIND = _QUERIES["find_upload"]
_FIND_ANYWHERE = _QUERIES["find_upload_anywhere"]
_FORGET = _QUERIES["forget_upload"]
_FORGET_WORK = _QUERIES["forget_work"]
_OF_FEED = _QUERIES["uploads_of_feed"]
_OLD = _QUERIES["old_uploads"]
_OLD_WORK = _QUERIES["old_work"]
_PLACE = _QUERIES["place_of_feed"]
_NAMES = load_queries("stoplist.records")["names_of_target"]

MAX_FILE_NAME_CHARS = 200
KEPT_DAYS = 7
# A server that was killed while it received a file leaves it like this.
_MAX_RECEIVING_MS = DAY_MS // 2
_PIECES_A_TIME = 8
_REJECTS_A_TIME = 20
_MOST_LISTED = 1_000


async def begin_upload(
    actor: Actor, stores: OptOutStores, channel: Channel, *, org_slug: str, file_name: str
) -> Upload:
    """Create an upload of which nothing has arrived yet.

    Missing for an organization that the actor may not see, Forbidden for one that the actor may only see, Refused for a
    closed one, and if too many uploads wait.
    """
    target = await find_target_of_person(actor, stores.database, org_slug=org_slug, group_id=None)
    number = (await open_feed(stores.database, target, channel)).feed_id
    waiting = await unfinished_uploads(stores.database, number)
    if len(waiting) >= MAX_UNFINISHED:
        raise Refused(
            f"{len(waiting)} uploaded files wait already. Import or discard one of them first: {waiting[0].import_id}.",
            field="file",
        )
    import_id = ids.new_id(ids.IMPORT_ID)

    async def begin(transaction: Transaction) -> None:
        await transaction.run(
            _BEGIN,
            feed_id=number,
            import_id=import_id,
            state=UPLOADING,
            file_name=with_spaces(file_name)[:MAX_FILE_NAME_CHARS],
            options=json_text(msgspec.to_builtins(UploadOptions())),
            actor_kind=actor.kind,
            actor_id=actor.id,
            created_ms=stores.clock.now_ms(),
        )

    await stores.database.write(begin, queue_key=number)
    return await _found(stores.database, number, import_id)


class UploadWriter:
    """Stores a file that arrives part by part; no more than a piece of it is in memory."""

    def __init__(self, database: Database, upload: Upload, *, max_bytes: int) -> None:
        self._database, self._upload, self._max_bytes = database, upload, max_bytes
        self._waiting = bytearray()
        self._bytes = self._pieces = 0

    async def add(self, content: bytes) -> bool:
        """Take the next bytes; return whether a piece was stored. Refused beyond the bound, or if it was discarded."""
        self._waiting += content
        if self._bytes + len(self._waiting) > self._max_bytes:
            raise too_large(self._max_bytes)
        has_stored = False
        while len(self._waiting) >= PIECE_BYTES:
            await self._store(bytes(self._waiting[:PIECE_BYTES]))
            del self._waiting[:PIECE_BYTES]
            has_stored = True
        return has_stored

    async def complete(self, actor: Actor, stores: OptOutStores) -> None:
        """Store the rest. From now on the upload can be imported. Refused if it is empty, or was discarded."""
        if self._waiting:
            await self._store(bytes(self._waiting))
        if not self._bytes:
            raise Refused("Choose a file that is not empty.", field="file")

        async def complete(transaction: Transaction) -> bool:
            completed = await transaction.run(_COMPLETE, **self._key)
            if completed:
                await _record(transaction, actor, stores, "upload.complete", self._upload, file_bytes=self._bytes)
            return bool(completed)

        if not await self._database.write(complete):
            raise _discarded()

    async def _store(self, content: bytes) -> None:
        size, number = self._bytes + len(content), self._pieces

        async def store(transaction: Transaction) -> bool:
            extended = await transaction.run(_EXTEND, **self._key, file_bytes=size, piece_count=number + 1)
            if extended:
                await transaction.run(_ADD_PIECE, **self._key, piece_no=number, content=content)
            return bool(extended)

        # A piece takes about as long as a batch.
        if not await self._database.write(store, queue_key=self._upload.feed_id, rows=HEAVY_ROWS + 1):
            raise _discarded()
        self._bytes, self._pieces = size, number + 1

    @property
    def _key(self) -> dict[str, Any]:
        return {"feed_id": self._upload.feed_id, "import_id": self._upload.import_id}


async def find_upload(
    actor: Actor, database: Database, channel: Channel, *, org_slug: str, import_id: str
) -> Upload | None:
    """Return the upload of that id; None if there is none. Missing and Forbidden as for `begin_upload`."""
    require_admin_of(actor, org_slug)
    if not ids.could_be_id(import_id, ids.IMPORT_ID):
        return None
    organization = await find_organization(database, org_slug)
    return await upload_of(database, feed_id(organization.organization_id, channel), import_id)


class UploadPlace(NamedTuple):
    """The organization, channel and feed of an upload."""

    org_slug: str
    channel: str
    feed_id: int


async def find_upload_place(database: Database, import_id: str) -> UploadPlace | None:
    """Return where the unfinished upload of that id is; None if there is none."""
    if not ids.could_be_id(import_id, ids.IMPORT_ID):
        return None
    row = await database.one(_FIND_ANYWHERE, import_id=import_id)
    if row is None or row["state"] == ENDED:
        return None
    return UploadPlace(await slug_of(database, row["organization_id"]), row["channel"], row["feed_id"])


async def slug_of(database: Database | Transaction, organization_id: int) -> str:
    """Return the slug of an organization; empty if there is none."""
    names = await database.one(_NAMES, organization_id=organization_id, group_no=ALL_GROUPS)
    return "" if names is None else str(names["slug"])


async def upload_of(database: Database, number: int, import_id: str) -> Upload | None:
    """Return the upload of an import into that feed; None if its file was not uploaded, or it was deleted."""
    row = await database.one(_FIND, feed_id=number, import_id=import_id)
    return None if row is None else upload_from_row(row)


async def uploads_of(database: Database | Transaction, number: int) -> list[Upload]:
    """Return the uploads for that feed, the newest first."""
    return [upload_from_row(row) for row in await database.all(_OF_FEED, feed_id=number, most=_MOST_LISTED)]


async def unfinished_uploads(database: Database | Transaction, number: int) -> list[Upload]:
    """Return the uploads for that feed that may still be imported, the newest first."""
    return [upload for upload in await uploads_of(database, number) if upload.state != ENDED]


async def unfinished_upload(database: Database | Transaction, number: int) -> Upload | None:
    """Return an upload for that feed that may still be imported; None if there is none.

    While there is one, no person of the feed may be erased: the file would bring the address back.
    """
    return next(iter(await unfinished_uploads(database, number)), None)


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

    async def end(transaction: Transaction) -> None:
        ended = await transaction.run(_END, feed_id=number, import_id=import_id, ended_ms=stores.clock.now_ms())
        if ended and discarded_by is not None:
            row = await transaction.one(_FIND, feed_id=number, import_id=import_id)
            if row is not None:
                await _record(transaction, discarded_by, stores, "upload.discard", upload_from_row(row))
        if cancels_work:
            await transaction.run(_CANCEL_WORK, feed_id=number, import_id=import_id)

    await stores.database.write(end)
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


async def _record(
    transaction: Transaction, actor: Actor, stores: OptOutStores, action: str, upload: Upload, **detail: Any
) -> None:
    place = await transaction.one(_PLACE, feed_id=upload.feed_id)
    if place is None:
        raise RuntimeError("the feed's row is gone")
    slug = await slug_of(transaction, place["organization_id"])
    await trail.record(
        transaction,
        actor,
        action,
        upload.import_id,
        at_ms=stores.clock.now_ms(),
        organizations=(slug,),
        channel=place["channel"],
        **detail,
    )


async def _run(database: Database, query: Query, **values: Any) -> int:
    return await database.write(lambda transaction: transaction.run(query, **values))


async def _delete(database: Database, query: Query, most: int, number: int, import_id: str) -> None:
    while await _run(database, query, feed_id=number, import_id=import_id, most=most):
        pass


async def _found(database: Database, number: int, import_id: str) -> Upload:
    found = await upload_of(database, number, import_id)
    if found is None:
        raise _discarded()
    return found


def too_large(max_bytes: int) -> TooLarge:
    """Return the refusal of a file that is larger than so many bytes."""
    return TooLarge(
        f"The file is larger than {max_bytes // 1_000_000:,} MB. Pack it with gzip, cut it into several files, or ask "
        "an operator to import it on the command line, which has no such bound.",
        field="file",
    )


def _discarded() -> Refused:
    return Refused("The upload was discarded meanwhile. Upload the file again.", field="file")


def upload_from_row(row: Row) -> Upload:
    """Return the upload of a row."""
    return Upload(
        feed_id=row["feed_id"],
        import_id=row["import_id"],
        state=row["state"],
        file_name=row["file_name"],
        file_bytes=row["file_bytes"],
        piece_count=row["piece_count"],
        header=tuple(msgspec.json.decode(row["header"], type=list[str])),
        options=msgspec.json.decode(row["options"], type=UploadOptions),
        actor_kind=row["actor_kind"],
        actor_id=row["actor_id"],
        created_ms=row["created_ms"],
        ended_ms=row["ended_ms"],
    )


def is_ready(upload: Upload | None) -> bool:
    """Return whether the whole file is there."""
    return upload is not None and upload.state == UPLOADED
