"""Create an organization. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import create_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/_new"  # no slug: an organization of that name would have no page


async def form(request: PageRequest) -> HtmlPage:
    """Slug, name, and the first group."""
    request.actor.must_be_administrator()
    return HtmlPage("organizations/organization_new.html")


async def create(request: PageRequest) -> Redirect:
    """The organization exists; without a name for it, it has no default group."""
    organization = await create_organization(
        request.actor,
        request.database,
        request.clock,
        slug=request.form.text("slug"),
        name=request.form.text("name"),
        default_group=request.form.text("default_group") or None,
    )
    return Redirect(f"/organizations/{organization.slug}", note="organization-created")


ROUTES = (get(_PATH, form), post(_PATH, create, again=form))
