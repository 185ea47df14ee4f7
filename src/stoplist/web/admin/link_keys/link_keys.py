"""List the link keys of an organization, and the settings of its opt-out page. docs/interface.md section D15."""

from stoplist.links.keys import list_link_keys
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the link keys."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    keys = await list_link_keys(request.actor, request.database, org_slug=organization.slug)
    values = {"organization": organization, "keys": keys, "is_admin": request.actor.administers([organization.slug])}
    return HtmlPage("link_keys/link_keys.html", values)


ROUTES = (get("/organizations/{slug}/links", show),)
