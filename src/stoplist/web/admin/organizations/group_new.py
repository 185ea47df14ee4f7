"""Create a group. Source: docs/interface.md section D5."""

from stoplist.organizations.groups import create_group
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/{slug}/groups/new"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    return HtmlPage("organizations/group_new.html", {"organization": organization})


async def create(request: PageRequest) -> Redirect:
    """Create the group."""
    slug = request.path["slug"]
    await create_group(
        request.actor,
        request.database,
        request.clock,
        org_slug=slug,
        name=request.form.text("name"),
        is_default="is_default" in request.form,
    )
    return Redirect(f"/organizations/{slug}", note="group-created")


ROUTES = (get(_PATH, form), post(_PATH, create, on_refusal=form))
