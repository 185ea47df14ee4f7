"""Export the opt-outs of an organization and channel: a form, and the file, which is produced while it is sent.

Source: docs/interface.md section D12.
"""

from datetime import UTC, datetime
from typing import get_args

from stoplist.errors import Refused
from stoplist.lists.exports.export import ExportRequest, begin_export
from stoplist.lists.exports.layouts import CONTENT_TYPES, CSV, LAYOUTS, NDJSON
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.store import require_admin_of
from stoplist.unsubscribes.model import Status
from stoplist.web.admin.opt_outs.filters import read_filters
from stoplist.web.admin.opt_outs.paths import channel_of, feed_path
from stoplist.web.admin.page_request import Download, HtmlPage, PageRequest, get

_PATH = "/unsubscribes/{org_slug}/{channel}/export"
_FILE_PATH = f"{_PATH}/file"
_LAYOUT_TITLES = {CSV: "CSV, for spreadsheets and imports", NDJSON: "NDJSON, for programs"}


async def show(request: PageRequest) -> HtmlPage:
    """Show the form."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    require_admin_of(request.actor, org_slug)
    return HtmlPage(
        "opt_outs/export.html",
        {
            "organization": await show_organization(request.actor, request.database, org_slug),
            "groups": await list_groups(request.actor, request.database, org_slug=org_slug),
            "statuses": get_args(Status),
            "layouts": list(_LAYOUT_TITLES.items()),
            "words": channel,
            "feed": feed_path(org_slug, channel),
        },
    )


async def download(request: PageRequest) -> Download:
    """Return the file. The link of a filtered list leads here with its filters."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    filters = read_filters(request)
    layout = request.query.text("format") or CSV
    if layout not in LAYOUTS:
        raise Refused(f"There is no such format: choose one of {', '.join(LAYOUTS)}.", field="format")
    export = await begin_export(
        request.actor,
        request.admin.opt_outs,
        channel,
        ExportRequest(
            org_slug=org_slug,
            group_id=request.query.text("for_group") or None,
            only_group=filters.group,
            status=filters.status,
            reason=filters.reason,
            recorded_from_ms=filters.recorded_from_ms,
            recorded_until_ms=filters.recorded_until_ms,
            layout=layout,
            has_history="history" in request.query,
        ),
    )
    today = datetime.fromtimestamp(request.clock.now_ms() / 1000, UTC).date().isoformat()
    name = f"stoplist-{org_slug}-{channel.name}-{today}.{layout}"
    return Download(name, CONTENT_TYPES[layout], export.parts())


ROUTES = (get(_PATH, show), get(_FILE_PATH, download))
