"""Organizations: every one that this person sees. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.page_request import Page, Visit, get


async def show(visit: Visit) -> Page:
    """The table, by slug; closed ones stay in it."""
    organizations = await list_organizations(visit.actor, visit.database)
    return Page("organizations/organizations.html", {"organizations": organizations})


WAYS = (get("/organizations", show),)
