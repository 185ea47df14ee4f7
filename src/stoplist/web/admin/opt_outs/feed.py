"""The changes of one organization and channel, newest first, with filters.

Source: docs/interface.md sections D5 and D6.
"""

from typing import get_args

from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.records.filters import ALL_GROUPS_FILTER
from stoplist.records.listing import Listing, list_records
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Reason, Status
from stoplist.web.admin.filtered_list import read_list
from stoplist.web.admin.opt_outs.filters import FILTER_FIELDS, read_filters
from stoplist.web.admin.opt_outs.paths import channel_of, feed_path, read_change
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show a page of the records that match the filters; for an invalid filter, the form with the problem."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    organization = await show_organization(request.actor, request.database, org_slug)
    here = feed_path(org_slug, channel)
    found = await read_list(request, here, FILTER_FIELDS, _read_listing)
    return HtmlPage(
        "opt_outs/feed.html",
        {
            "organization": organization,
            "channel": channel.name,
            "channels": CHANNELS,
            "words": CHANNELS,
            "groups": await list_groups(request.actor, request.database, org_slug=org_slug),
            "every_group": ALL_GROUPS_FILTER,
            "statuses": get_args(Status),
            "reasons": get_args(Reason),
            **found.context,
            "listing": found.page,
            "here": here,
            "older": None if found.page is None else found.url(before=str(found.page.older)),
            "may_export": request.actor.administers([org_slug]),
            "export": found.url(f"{here}/export/file"),
            "may_add": not organization.is_closed and request.actor.administers([org_slug]),
        },
        found.status,
    )


async def _read_listing(request: PageRequest) -> Listing:
    filters = read_filters(request)
    before = request.query.text("before")
    return await list_records(
        request.actor,
        request.database,
        org_slug=request.path["org_slug"],
        channel=channel_of(request),
        group=filters.group,
        status=filters.status,
        reason=filters.reason,
        recorded_from_ms=filters.recorded_from_ms,
        recorded_until_ms=filters.recorded_until_ms,
        before_seq=read_change(before) if before else None,
    )


ROUTES = (get("/unsubscribes/{org_slug}/{channel}", show),)
