"""The changes of one organization and channel, newest first, with filters.

Source: docs/interface.md sections D5 and D6.
"""

from typing import get_args
from urllib.parse import urlencode

from stoplist.clock import DAY_MS
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.records.listing import ALL_GROUPS_FILTER, Listing, list_records
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Reason, Status
from stoplist.web.admin.opt_outs.paths import channel_of, feed_path, read_change
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get
from stoplist.web.admin.times import read_day_ms

_FILTERS = ("group", "status", "reason", "from", "until")


async def show(request: PageRequest) -> HtmlPage:
    """Show a page of the records that match the filters; for an invalid filter, the form with the problem."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    organization = await show_organization(request.actor, request.database, org_slug)
    status, listing = 200, None
    try:
        listing = await _read_listing(request)
    except (Missing, Forbidden):
        raise
    except Refused as refusal:
        request.refusal, status = refusal, 422
    filters = {name: request.query.text(name) for name in _FILTERS}
    here, set_filters = feed_path(org_slug, channel), {name: text for name, text in filters.items() if text}
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
            "filters": filters,
            "is_filtered": bool(set_filters),
            "is_first": not request.query.text("before"),
            "listing": listing,
            "here": here,
            "newest": _url(here, set_filters),
            "older": None if listing is None else _url(here, set_filters | {"before": str(listing.older)}),
            "may_add": not organization.is_closed and request.actor.administers([org_slug]),
        },
        status,
    )


async def _read_listing(request: PageRequest) -> Listing:
    first_ms = read_day_ms(request.query.text("from"), field="from")
    last_ms = read_day_ms(request.query.text("until"), field="until")
    if first_ms is not None and last_ms is not None and last_ms < first_ms:
        raise Refused("The end date is before the start date.", field="until")
    before = request.query.text("before")
    return await list_records(
        request.actor,
        request.database,
        org_slug=request.path["org_slug"],
        channel=channel_of(request),
        group=request.query.text("group") or None,
        status=request.query.text("status") or None,
        reason=request.query.text("reason") or None,
        recorded_from_ms=first_ms,
        recorded_until_ms=None if last_ms is None else last_ms + DAY_MS,
        before_seq=read_change(before) if before else None,
    )


def _url(here: str, query: dict[str, str]) -> str:
    return f"{here}?{urlencode(query)}" if query else here


ROUTES = (get("/unsubscribes/{org_slug}/{channel}", show),)
