"""The forms of an import's page: change how the file is read, check it, begin, stop, resume, discard.

Source: docs/interface.md section D12, On the pages.
"""

import msgspec
from stoplist_addresses.lists import ListError

from stoplist.errors import Refused
from stoplist.lists.imports.lifecycle import discard_import
from stoplist.lists.uploads.model import Upload
from stoplist.lists.uploads.requests import (
    request_check,
    resume_uploaded,
    set_options,
    start_import,
    stop_uploaded,
)
from stoplist.lists.uploads.status import ImportStatus
from stoplist.lists.uploads.upload_end import discard_upload
from stoplist.organizations.store import require_admin_of
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.imports.import_page import preview_of, show
from stoplist.web.admin.imports.option_fields import read_options
from stoplist.web.admin.imports.paths import IMPORT_PATH, import_path
from stoplist.web.admin.imports.states import status_of
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post


async def change_options(request: PageRequest) -> Redirect:
    """Store the choices; with the other button of the form, also check the whole file."""
    status, upload = await _uploaded(request)
    stores, options = request.admin.opt_outs, read_options(request.form)
    header = upload.header
    is_readable = True
    try:
        changed = msgspec.structs.replace(upload, options=options)
        header = (await preview_of(request, status, changed)).header
    except ListError as error:
        header, is_readable = error.header or header, False
    await set_options(request.actor, stores, upload, options, org_slug=status.org_slug, header=header)
    if "check" in request.form and is_readable:
        await request_check(request.actor, stores, msgspec.structs.replace(upload, options=options, header=header))
    return Redirect(import_path(status.import_id))


async def start(request: PageRequest) -> Redirect:
    """Begin the import with the choices that were checked."""
    status, upload = await _uploaded(request)
    if status.work is None or request.form.text("checked") != str(status.work.requested_ms):
        raise Refused("The file was checked again, or its choices were changed. Look at the counts as they are now.")
    stores, channel = request.admin.opt_outs, CHANNELS[status.channel]
    await start_import(request.actor, stores, channel, upload, org_slug=status.org_slug)
    return Redirect(import_path(status.import_id))


async def stop(request: PageRequest) -> Redirect:
    """Stop the import after the part in progress."""
    status = await status_of(request)
    if status.begun is None:
        raise Refused("The import has not begun.")
    await stop_uploaded(request.actor, request.admin.opt_outs, status.begun)
    return Redirect(import_path(status.import_id))


async def resume(request: PageRequest) -> Redirect:
    """Go on with a stopped import."""
    status = await status_of(request)
    if status.begun is None:
        raise Refused("The import has not begun.")
    await resume_uploaded(request.actor, request.admin.opt_outs, status.begun, status.upload)
    return Redirect(import_path(status.import_id))


async def discard_form(request: PageRequest) -> HtmlPage:
    """Show what would be given up."""
    status = await status_of(request)
    require_admin_of(request.actor, status.org_slug)
    return HtmlPage(
        "imports/import_discard.html",
        {
            "status": status,
            "here": import_path(status.import_id),
            "can_be_discarded": status.begun is None or status.state in ("running", "stopped"),
        },
    )


async def discard(request: PageRequest) -> Redirect:
    """Give up what is not stored yet, and delete the file and its rejected rows."""
    status = await status_of(request)
    require_admin_of(request.actor, status.org_slug)
    stores = request.admin.opt_outs
    if status.upload is None:
        await discard_import(request.actor, stores, status.import_id)
    else:
        if status.begun is not None and status.state not in ("running", "stopped", "discarded"):
            raise Refused(f"The import is {status.state}: nothing of it is left to discard.")
        await discard_upload(request.actor, stores, status.upload.feed_id, status.import_id)
    if status.begun is None:
        return Redirect("/settings/imports", note="upload-discarded")
    return Redirect(import_path(status.import_id), note="import-discarded")


async def _uploaded(request: PageRequest) -> tuple[ImportStatus, Upload]:
    """Return the import in the path, of which the actor is an admin, and its file. Raises Refused."""
    status = await status_of(request)
    require_admin_of(request.actor, status.org_slug)
    if status.upload is None:
        raise Refused("This import was begun on the command line, so its file is not here.")
    return status, status.upload


_DISCARD_PATH = f"{IMPORT_PATH}/discard"
ROUTES = (
    post(f"{IMPORT_PATH}/options", change_options, on_refusal=show),
    post(f"{IMPORT_PATH}/start", start, on_refusal=show),
    post(f"{IMPORT_PATH}/stop", stop, on_refusal=show),
    post(f"{IMPORT_PATH}/resume", resume, on_refusal=show),
    get(_DISCARD_PATH, discard_form),
    post(_DISCARD_PATH, discard, on_refusal=discard_form),
)
