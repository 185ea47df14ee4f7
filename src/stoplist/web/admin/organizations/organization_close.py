"""Close an organization for good. Source: docs/interface.md section D5."""

from stoplist.oauth.credentials import list_credentials
from stoplist.organizations.organizations import close_organization, show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/{slug}/close"


async def form(request: PageRequest) -> HtmlPage:
    """Show what will stop working, and for which keys."""
    request.actor.require_administrator()
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    keys = [
        key
        for key in await list_credentials(request.actor, request.database)
        if key.is_active and organization.slug in key.organizations
    ]
    return HtmlPage("organizations/organization_close.html", {"organization": organization, "keys": keys})


async def close(request: PageRequest) -> Redirect:
    """Close the organization, which cannot be undone."""
    slug = request.path["slug"]
    await close_organization(request.actor, request.database, request.clock, slug=slug)
    return Redirect(f"/organizations/{slug}", note="organization-closed")


ROUTES = (get(_PATH, form), post(_PATH, close, on_refusal=form))
