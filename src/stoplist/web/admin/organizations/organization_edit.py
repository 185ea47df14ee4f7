"""Give an organization another name. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import rename_organization, show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/{slug}/rename"


async def form(request: PageRequest) -> HtmlPage:
    """The name as it is."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.must_administer(organization.slug)
    return HtmlPage("organizations/organization_edit.html", {"organization": organization})


async def rename(request: PageRequest) -> Redirect:
    """The organization has the new name."""
    slug = request.path["slug"]
    await rename_organization(request.actor, request.database, request.clock, slug=slug, name=request.form.text("name"))
    return Redirect(f"/organizations/{slug}", note="organization-renamed")


ROUTES = (get(_PATH, form), post(_PATH, rename, again=form))
