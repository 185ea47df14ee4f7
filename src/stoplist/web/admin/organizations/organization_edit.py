"""Rename an organization. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import rename_organization, show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/{slug}/rename"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form with the current name."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    return HtmlPage("organizations/organization_edit.html", {"organization": organization})


async def rename(request: PageRequest) -> Redirect:
    """Rename the organization."""
    slug = request.path["slug"]
    await rename_organization(request.actor, request.database, request.clock, slug=slug, name=request.form.text("name"))
    return Redirect(f"/organizations/{slug}", note="organization-renamed")


ROUTES = (get(_PATH, form), post(_PATH, rename, on_refusal=form))
