"""A person who uploads files into an organization, and servers that work on them, at the level of operations."""

from typing import Any, NamedTuple

import msgspec

from stoplist.actor import ADMINISTER, Actor
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import Import
from stoplist.lists.uploads.model import ImportWork, Upload, UploadLimits, UploadOptions
from stoplist.lists.uploads.requests import request_check, set_options, start_import
from stoplist.lists.uploads.upload_writer import UploadWriter, begin_upload
from stoplist.lists.uploads.uploads import upload_of
from stoplist.lists.uploads.work import find_work
from stoplist.lists.uploads.worker import FindActor, ImportWorker, OnEnded
from stoplist.unsubscribes.channel import CHANNELS, Channel
from tests.builders import ADMINISTRATOR
from tests.unsubscribes.partner import Organization

LIMITS = UploadLimits.of_megabytes(2)
ALL = UploadOptions(target="all")


async def with_all_rights(kind: str, actor_id: str) -> Actor:
    """Return an actor who may do anything."""
    return Actor(kind=kind, id=actor_id, may=frozenset((ADMINISTER,)))


class Uploader(NamedTuple):
    """Uploads into all groups of an organization, as a chosen actor."""

    organization: Organization
    actor: Any = ADMINISTRATOR
    limits: UploadLimits = LIMITS
    on_ended: OnEnded = lambda outcome: None

    @property
    def channel(self) -> Channel:
        return CHANNELS[self.organization.channel]

    @property
    def stores(self) -> Any:
        return self.organization.deployment.stores

    async def begin(self, name: str = "list.csv") -> Upload:
        """Begin an upload."""
        return await begin_upload(
            self.actor, self.stores, self.channel, org_slug=self.organization.slug, file_name=name
        )

    async def upload(self, content: bytes, options: UploadOptions = ALL, *, name: str = "list.csv") -> Upload:
        """Upload a whole file, and say this about it."""
        upload = await self.begin(name)
        writer = UploadWriter(self.stores.database, upload, max_bytes=self.limits.file_bytes)
        for at in range(0, len(content), 60_000):
            await writer.add(content[at : at + 60_000])
        await writer.complete(self.actor, self.stores)
        return await self.say(await self.now(upload), options)

    async def say(self, upload: Upload, options: UploadOptions) -> Upload:
        """Say something else about the file."""
        slug = self.organization.slug
        await set_options(self.actor, self.stores, upload, options, org_slug=slug, header=())
        return await self.now(upload)

    async def check(self, upload: Upload) -> ImportWork:
        """Ask for a check, and let a server do it."""
        await request_check(self.actor, self.stores, upload)
        return await self.work(upload)

    async def start(self, upload: Upload) -> Import:
        """Start the import, which nobody stores yet."""
        return await start_import(self.actor, self.stores, self.channel, upload, org_slug=self.organization.slug)

    async def take(self, content: bytes, *, name: str = "list.csv") -> Import:
        """Upload, check and import a whole file."""
        upload = await self.upload(content, name=name)
        await self.check(upload)
        await self.start(upload)
        await self.work(upload)
        return await self.imported(upload)

    async def work(self, upload: Upload | Import, find_actor: FindActor | None = None) -> ImportWork:
        """Let a server do what waits, and return what it did."""
        find_actor = find_actor or with_all_rights
        await ImportWorker(self.stores, self.limits, find_actor, on_ended=self.on_ended).finish()
        found = await find_work(self.stores.database, upload.feed_id, upload.import_id)
        assert found is not None
        return found

    async def now(self, upload: Upload | Import) -> Upload:
        """Return the upload as it is now."""
        found = await upload_of(self.stores.database, upload.feed_id, upload.import_id)
        assert found is not None
        return found

    async def imported(self, upload: Upload | Import) -> Import:
        """Return the import of the file as it is now."""
        return await find_import(ADMINISTRATOR, self.stores.database, upload.import_id)


def without_times(found: Import) -> dict[str, Any]:
    """Return what must be the same of an undisturbed import of the same file."""
    counts = msgspec.structs.asdict(found.counts)
    return {"state": found.state, "row_count": found.row_count, "sha256": found.sha256, "counts": counts}
