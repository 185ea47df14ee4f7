"""Propagation: how far each key has followed each feed, and which keys are behind.

Source: docs/interface.md section D14, Propagation.
"""

from stoplist.organizations.organizations import list_organizations
from stoplist.proof.propagation import propagation
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.key_use import flush_positions
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get

PATH = "/unsubscribes/propagation"


async def show(request: PageRequest) -> HtmlPage:
    """Show the keys of one organization, or of all that the person may see; those that are behind come first."""
    await flush_positions(request)
    org_slug, hours = request.query.text("organization") or None, request.admin.propagation_hours
    found = await propagation(request.actor, request.admin.opt_outs, hours=hours, org_slug=org_slug)
    return HtmlPage(
        "propagation/propagation.html",
        {
            "here": PATH,
            "organizations": await list_organizations(request.actor, request.database),
            "org_slug": org_slug,
            "found": found,
            "words": CHANNELS,
            "hours": hours,
            "now_ms": request.clock.now_ms(),
            "may_mark": {one.org_slug: request.actor.administers([one.org_slug]) for one in found},
        },
    )


ROUTES = (get(PATH, show),)
