"""The uploads of a feed, as they are stored in the database.

Source: docs/interface.md section D12, On the pages.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.lists.uploads.model import ENDED, UPLOADED, Upload, UploadOptions
from stoplist.organizations.target import ALL_GROUPS
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_FIND = _QUERIES["find_upload"]
_FIND_ANYWHERE = _QUERIES["find_upload_anywhere"]
_OF_FEED = _QUERIES["uploads_of_feed"]
_PLACE = _QUERIES["place_of_feed"]
_NAMES = load_queries("stoplist.records")["names_of_target"]

_MOST_LISTED = 1_000


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


async def slug_of(database: Database, organization_id: int) -> str:
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


async def audit_writer(
    actor: Actor, stores: OptOutStores, action: str, number: int, import_id: str, **detail: Any
) -> Callable[[Transaction], Awaitable[None]]:
    """Return what adds an entry about an upload for the feed of that number to the audit."""
    place = await stores.database.one(_PLACE, feed_id=number)
    if place is None:
        raise RuntimeError("the feed's row is gone")
    slug, channel = await slug_of(stores.database, place["organization_id"]), place["channel"]

    async def write(transaction: Transaction) -> None:
        at_ms = stores.clock.now_ms()
        await trail.record(
            transaction, actor, action, import_id, at_ms=at_ms, organizations=(slug,), channel=channel, **detail
        )

    return write


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
