"""Create an organization. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import create_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/_new"  # not a valid slug, so no organization can have this path


async def form(request: PageRequest) -> HtmlPage:
    """Show the form for slug, name and first group."""
    request.actor.require_administrator()
    return HtmlPage("organizations/organization_new.html")


async def create(request: PageRequest) -> Redirect:
    """Create the organization; if the name of the default group is empty, without one."""
    organization = await create_organization(
        request.actor,
        request.database,
        request.clock,
        slug=request.form.text("slug"),
        name=request.form.text("name"),
        default_group=request.form.text("default_group") or None,
    )
    return Redirect(f"/organizations/{organization.slug}", note="organization-created")


ROUTES = (get(_PATH, form), post(_PATH, create, on_refusal=form))
