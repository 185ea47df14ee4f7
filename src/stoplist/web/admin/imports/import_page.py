"""An import from the uploaded file to its result: preview, dry run, progress, counts, and what can be done next.

Source: docs/interface.md section D12, On the pages.
"""

from typing import Any

from stoplist_addresses.lists import ListError

from stoplist.errors import Refused
from stoplist.lists.uploads.model import Upload, UploadLimits
from stoplist.lists.uploads.preview import Preview, preview_upload
from stoplist.lists.uploads.status import ImportStatus
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.imports.option_fields import (
    COLUMN_TITLES,
    FIELD_OF_OPTION,
    choices,
    column_choices,
    option_values,
)
from stoplist.web.admin.imports.paths import IMPORT_PATH, import_path
from stoplist.web.admin.imports.states import STATES, status_of
from stoplist.web.admin.opt_outs.paths import feed_path
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the import, whatever its state."""
    status = await status_of(request)
    organization = await show_organization(request.actor, request.database, status.org_slug)
    is_admin = request.actor.administers([status.org_slug])
    values: dict[str, Any] = {
        "status": status,
        "organization": organization,
        "state": STATES[status.state],
        "words": CHANNELS[status.channel],
        "feed": feed_path(status.org_slug, CHANNELS[status.channel]),
        "here": import_path(status.import_id),
        "is_admin": is_admin,
        "preview": None,
    }
    is_open = status.begun is None and not status.is_worked_on and status.state != "uploading"
    if is_open and status.upload is not None:
        values |= await _options(request, status, status.upload)
    return HtmlPage("imports/import_page.html", values)


async def _options(request: PageRequest, status: ImportStatus, upload: Upload) -> dict[str, Any]:
    """Return the values of the form about the file, and the preview with the choices as they are stored."""
    channel = CHANNELS[status.channel]
    groups = await list_groups(request.actor, request.database, org_slug=status.org_slug)
    preview, header = None, upload.header
    try:
        preview = await preview_of(request, status, upload)
        header = preview.header
    except ListError as error:
        header = error.header or header
        field = FIELD_OF_OPTION.get(error.option or "")
        request.refusal = request.refusal or Refused(str(error), field=field)
    except Refused as refusal:
        request.refusal = request.refusal or refusal
    return {
        "preview": preview,
        "header": header,
        "values": option_values(upload.options),
        "columns": column_choices(header),
        "column_titles": COLUMN_TITLES,
        **choices(channel, groups),
    }


async def preview_of(request: PageRequest, status: ImportStatus, upload: Upload) -> Preview:
    """Return the preview of a file with the choices as they are stored. Raises ListError and Refused."""
    return await preview_upload(
        request.database,
        CHANNELS[status.channel],
        upload,
        upload.options,
        limits=UploadLimits.of_megabytes(request.admin.import_max_mb),
        now_ms=request.clock.now_ms(),
    )


ROUTES = (get(IMPORT_PATH, show),)
