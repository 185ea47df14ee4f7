"""Organizations: every one that this person may see. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.organization_filter import filtered_organizations
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the organizations by slug, closed ones included; many of them with a search."""
    visible = await list_organizations(request.actor, request.database)
    return HtmlPage("organizations/organizations.html", filtered_organizations(request, visible))


ROUTES = (get("/organizations", show),)
