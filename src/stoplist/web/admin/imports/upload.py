"""Upload a file of opt-outs. Its body is stored piece by piece while it arrives.

Source: docs/interface.md section D12, On the pages.
"""

from contextlib import suppress

import msgspec

from stoplist.actor import Actor
from stoplist.errors import Refused, StoreUnavailable
from stoplist.lists.uploads.model import Upload, UploadLimits, UploadOptions
from stoplist.lists.uploads.requests import set_options
from stoplist.lists.uploads.upload_end import abandon_upload
from stoplist.lists.uploads.upload_writer import UploadWriter, begin_upload, too_large
from stoplist.lists.uploads.uploads import upload_of
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.store import require_admin_of
from stoplist.organizations.target import find_target_of_person
from stoplist.unsubscribes.channel import Channel
from stoplist.web.admin.fields import Fields
from stoplist.web.admin.imports.option_fields import choices, option_values, read_options
from stoplist.web.admin.imports.paths import import_path
from stoplist.web.admin.opt_outs.paths import channel_of, feed_path
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, upload
from stoplist.web.multipart import MultipartReader
from stoplist.web.request_context import SIGN_IN_PATH

_PATH = "/unsubscribes/{org_slug}/{channel}/import"
_MAX_FIELD_BYTES = 64 * 1024
_MAX_FORM_BYTES = 1024 * 1024


async def show(request: PageRequest) -> HtmlPage:
    """Show the form."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    require_admin_of(request.actor, org_slug)
    organization = await show_organization(request.actor, request.database, org_slug)
    groups = await list_groups(request.actor, request.database, org_slug=org_slug)
    return HtmlPage(
        "imports/upload.html",
        {
            "organization": organization,
            "words": channel,
            "feed": feed_path(org_slug, channel),
            "values": option_values(UploadOptions()),
            "max_mb": request.admin.import_max_mb,
            **choices(channel, groups),
        },
    )


async def receive(request: PageRequest) -> Redirect:
    """Store the file, and lead to its preview. Nothing is left of a file that does not arrive as a whole."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    # Before a byte of the body is read.
    await find_target_of_person(request.actor, request.database, org_slug=org_slug, group_id=None)
    limits = UploadLimits.of_megabytes(request.admin.import_max_mb)
    if request.stream.body.announced_bytes > limits.file_bytes + _MAX_FORM_BYTES:
        raise too_large(limits.file_bytes)
    arriving = _ArrivingForm(request, channel, limits)
    try:
        received = await arriving.read()
        # The file may have taken an hour to arrive.
        now = await request.stream.renew()
        if now.person is None:
            await arriving.abandon()
            return Redirect(SIGN_IN_PATH)
        require_admin_of(now.actor, org_slug)
        await arriving.complete(now.actor)
    except BaseException:
        await arriving.abandon()
        raise
    await _keep_options(request, received)
    return Redirect(import_path(received.import_id))


class _ArrivingForm:
    """The form while it arrives: its fields, which precede the file, and what is stored of the file."""

    def __init__(self, request: PageRequest, channel: Channel, limits: UploadLimits) -> None:
        self._request, self._channel, self._limits = request, channel, limits
        self._reader = MultipartReader(request.stream.body.chunks(), request.stream.body.content_type)
        self._fields: dict[str, list[str]] = {}
        self._upload: Upload | None = None
        self._writer: UploadWriter | None = None

    async def read(self) -> Upload:
        """Read the whole form, and store the file. Raise Refused if there is none, or if it is too large."""
        while (part := await self._reader.next_part()) is not None:
            if part.file_name is None:
                text = await self._reader.text(max_bytes=_MAX_FIELD_BYTES)
                self._fields.setdefault(part.name, []).append(text)
                self._request.form = Fields(self._fields)
            elif part.name == "file" and part.file_name and self._upload is None:
                await self._store(part.file_name)
        if self._upload is None:
            raise Refused("Choose a file.", field="file")
        return self._upload

    async def complete(self, actor: Actor) -> None:
        """Let the file be imported. Raise Refused if it is empty."""
        if self._writer is not None:
            await self._writer.complete(actor, self._request.admin.opt_outs)

    async def abandon(self) -> None:
        """Leave nothing of the file. If the database is unavailable, a chore does so later."""
        if self._upload is not None:
            with suppress(StoreUnavailable):
                await abandon_upload(self._request.admin.opt_outs, self._upload)

    async def _store(self, file_name: str) -> None:
        request = self._request
        self._upload = await begin_upload(
            request.actor,
            request.admin.opt_outs,
            self._channel,
            org_slug=request.path["org_slug"],
            file_name=file_name,
        )
        self._writer = UploadWriter(request.database, self._upload, max_bytes=self._limits.file_bytes)
        async for content in self._reader.content():
            await self._writer.add(content)


async def _keep_options(request: PageRequest, received: Upload) -> None:
    """Store what the form says; a refused choice is made again beside the preview."""
    org_slug = request.path["org_slug"]
    stores, options = request.admin.opt_outs, read_options(request.form)
    upload_now = await upload_of(request.database, received.feed_id, received.import_id)
    if upload_now is None:
        return
    try:
        await set_options(request.actor, stores, upload_now, options, org_slug=org_slug, header=())
    except Refused:
        without = msgspec.structs.replace(options, target="")
        await set_options(request.actor, stores, upload_now, without, org_slug=org_slug, header=())


ROUTES = (get(_PATH, show), upload(_PATH, receive, on_refusal=show))
