"""The imports that a person sees, and the uploaded files that wait, newest first.

Source: docs/interface.md section D12, On the pages.
"""

from stoplist.actor import ADMIN
from stoplist.lists.uploads.status import MOST_LISTED, list_statuses
from stoplist.organizations.organizations import list_organizations
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.imports.states import STATES
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the list, of all organizations or of one."""
    org_slug = request.query.text("organization") or None
    found = await list_statuses(request.actor, request.database, org_slug=org_slug)
    return HtmlPage(
        "imports/imports.html",
        {
            "found": found,
            "organizations": await list_organizations(request.actor, request.database),
            "org_slug": org_slug,
            "may_upload": request.actor.is_administrator or ADMIN in request.actor.roles.values(),
            "most": MOST_LISTED,
            "words": CHANNELS,
            "states": STATES,
        },
    )


ROUTES = (get("/settings/imports", show),)
