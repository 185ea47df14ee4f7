"""Show a link key: its state, and the number of acts by its links. Source: docs/interface.md section D15."""

from stoplist.clock import DAY_MS
from stoplist.errors import Missing
from stoplist.links.keys import ACTS_DAYS, count_acts, show_link_key
from stoplist.links.model import LinkKeyDetails
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the key, with the number of acts by its links."""
    organization, key = await link_key_of(request)
    values = {
        "organization": organization,
        "key": key,
        "acts": await recent_acts(request, key),
        "days": ACTS_DAYS,
        "is_admin": request.actor.administers([organization.slug]),
    }
    return HtmlPage("link_keys/link_key.html", values)


async def link_key_of(request: PageRequest) -> tuple[Organization, LinkKeyDetails]:
    """Return the organization and the link key of the path; Missing if the key is not one of the organization."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    key = await show_link_key(request.actor, request.database, request.path["link_key_id"])
    if key.org_slug != organization.slug:
        raise Missing("The organization has no such link key.")
    return organization, key


async def recent_acts(request: PageRequest, key: LinkKeyDetails) -> int:
    """Return how many acts by links of the key were stored in the last ACTS_DAYS days."""
    since_ms = request.clock.now_ms() - ACTS_DAYS * DAY_MS
    return await count_acts(request.actor, request.database, key.link_key_id, since_ms=since_ms)


ROUTES = (get("/organizations/{slug}/links/{link_key_id}", show),)
