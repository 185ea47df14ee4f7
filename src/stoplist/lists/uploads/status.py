"""Finds and lists imports and uploaded files together, with the work that servers do on them.

Source: docs/interface.md section D12, On the pages.
"""

from typing import Literal

import msgspec

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden, Missing
from stoplist.lists.imports.listing import find_import, list_imports
from stoplist.lists.imports.model import Import
from stoplist.lists.imports.model import State as ImportState
from stoplist.lists.uploads.model import CHECK, ENDED, UPLOADING, ImportWork, Upload
from stoplist.lists.uploads.uploads import UploadPlace, find_upload_place, slug_of, upload_from_row, upload_of
from stoplist.lists.uploads.work import find_work
from stoplist.organizations.store import find_organization, require_visible

_UNFINISHED = load_queries(__package__)["unfinished_uploads"]

State = Literal["uploading", "uploaded", "checking", "checked"] | ImportState
MOST_LISTED = 200


class ImportStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file or an import; `upload` is None if the file was not uploaded, `begun` until the import begins."""

    import_id: str
    org_slug: str
    channel: str
    upload: Upload | None
    begun: Import | None
    work: ImportWork | None

    @property
    def state(self) -> State:
        """Return the state; before the import has begun, how far its file came."""
        if self.begun is not None:
            return self.begun.state
        if self.upload is not None and self.upload.state == UPLOADING:
            return "uploading"
        if self.work is not None and self.work.work == CHECK:
            return "checking"
        return "uploaded" if self.work is None or self.work.result.check is None else "checked"

    @property
    def is_worked_on(self) -> bool:
        """Return whether a server works on it, or will."""
        return self.work is not None and self.work.work is not None

    @property
    def file_name(self) -> str:
        if self.begun is not None:
            return self.begun.file_name
        return "" if self.upload is None else self.upload.file_name

    @property
    def started_ms(self) -> int:
        """Return when the import began, or the upload before it."""
        if self.begun is not None:
            return self.begun.started_ms
        return 0 if self.upload is None else self.upload.created_ms

    @property
    def has_file(self) -> bool:
        """Return whether the uploaded file is still there."""
        return self.upload is not None and self.upload.state != ENDED


async def find_status(actor: Actor, database: Database, import_id: str) -> ImportStatus:
    """Return the import or uploaded file of that id.

    Missing if there is none that the actor sees; Forbidden for an uploaded file that the actor may only see.
    """
    begun: Import | None = None
    try:
        begun = await find_import(actor, database, import_id)
        place = UploadPlace(begun.org_slug, begun.channel, begun.feed_id)
    except Missing:
        waiting = await find_upload_place(database, import_id)
        if waiting is None or not actor.sees(waiting.org_slug):
            raise
        if not actor.administers([waiting.org_slug]):
            raise Forbidden("Only admins of the organization see a file before its import has begun.") from None
        place = waiting
    return ImportStatus(
        import_id=import_id,
        org_slug=place.org_slug,
        channel=place.channel,
        upload=await upload_of(database, place.feed_id, import_id),
        begun=begun,
        work=await find_work(database, place.feed_id, import_id),
    )


async def list_statuses(
    actor: Actor, database: Database, *, org_slug: str | None = None, most: int = MOST_LISTED
) -> list[ImportStatus]:
    """Return the newest imports that the actor sees, and the uploaded files of organizations that they administer."""
    if org_slug is not None:
        require_visible(actor, org_slug)
        await find_organization(database, org_slug)
    slugs = [org_slug] if org_slug is not None or actor.is_administrator else sorted(actor.roles)
    begun = [each for slug in slugs for each in await list_imports(actor, database, org_slug=slug, limit=most)]
    found = [
        ImportStatus(
            import_id=each.import_id, org_slug=each.org_slug, channel=each.channel, upload=None, begun=each, work=None
        )
        for each in begun
    ]
    known = {each.import_id for each in begun}
    for row in await database.all(_UNFINISHED):
        slug = await slug_of(database, row["organization_id"])
        if row["import_id"] in known or org_slug not in (None, slug) or not actor.administers([slug]):
            continue
        upload = upload_from_row(row)
        work = await find_work(database, upload.feed_id, upload.import_id)
        found.append(
            ImportStatus(
                import_id=upload.import_id,
                org_slug=slug,
                channel=row["channel"],
                upload=upload,
                begun=None,
                work=work,
            )
        )
    return sorted(found, key=lambda each: each.started_ms, reverse=True)[:most]
