"""Receives the file of an upload, piece by piece, into the database, so that any host can import it.

Source: docs/interface.md section D12, On the pages.
"""

from typing import Any

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.control_characters import with_spaces
from stoplist.db import HEAVY_ROWS, Database, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused, TooLarge
from stoplist.lists.uploads.model import MAX_UNFINISHED, PIECE_BYTES, UPLOADING, Upload, UploadOptions
from stoplist.lists.uploads.uploads import audit_writer, unfinished_uploads, upload_of
from stoplist.organizations.target import find_target_of_person
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.feed import open_feed
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_ADD_PIECE = _QUERIES["add_piece"]
_BEGIN = _QUERIES["begin_upload"]
_COMPLETE = _QUERIES["complete_upload"]
_EXTEND = _QUERIES["extend_upload"]

MAX_FILE_NAME_CHARS = 200


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

        number, import_id = self._upload.feed_id, self._upload.import_id
        record = await audit_writer(actor, stores, "upload.complete", number, import_id, file_bytes=self._bytes)

        async def complete(transaction: Transaction) -> bool:
            completed = await transaction.run(_COMPLETE, **self._key)
            if completed:
                await record(transaction)
            return bool(completed)

        if not await self._database.write(complete, feed_id=number):
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


def too_large(max_bytes: int) -> TooLarge:
    """Return the refusal of a file that is larger than so many bytes."""
    return TooLarge(
        f"The file is larger than {max_bytes // 1_000_000:,} MB. Pack it with gzip, cut it into several files, or ask "
        "an operator to import it on the command line, which has no such bound.",
        field="file",
    )


async def _found(database: Database, number: int, import_id: str) -> Upload:
    found = await upload_of(database, number, import_id)
    if found is None:
        raise _discarded()
    return found


def _discarded() -> Refused:
    return Refused("The upload was discarded meanwhile. Upload the file again.", field="file")
