"""Create a link key; the answer shows it once. Source: docs/interface.md section D15."""

from stoplist.links.keys import create_link_key
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get, post

_PATH = "/organizations/{slug}/links/new"


async def form(request: PageRequest) -> HtmlPage:
    """Show what a link key is for, and the button."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    return HtmlPage("link_keys/link_key_new.html", {"organization": organization})


async def create(request: PageRequest) -> HtmlPage:
    """Create the link key and show it."""
    created = await create_link_key(
        request.actor,
        request.database,
        request.clock,
        secret_keys=request.admin.secret_keys,
        org_slug=request.path["slug"],
    )
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    values = {"organization": organization, "key": created.details, "link_key": created.link_key}
    return HtmlPage("link_keys/link_key_secret.html", values)


ROUTES = (get(_PATH, form), post(_PATH, create, on_refusal=form))
