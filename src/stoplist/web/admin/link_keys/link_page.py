"""Change the contact line and the accent colour of the page behind the links. docs/interface.md section D15."""

from stoplist.organizations.organizations import set_link_page, show_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/{slug}/links/page"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form with the present values."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    return HtmlPage("link_keys/link_page.html", {"organization": organization})


async def change(request: PageRequest) -> Redirect:
    """Store the values."""
    slug = request.path["slug"]
    await set_link_page(
        request.actor,
        request.database,
        request.clock,
        slug=slug,
        contact_line=request.form.text("contact_line"),
        accent_colour=request.form.text("accent_colour"),
    )
    return Redirect(f"/organizations/{slug}/links", note="link-page-set")


ROUTES = (get(_PATH, form), post(_PATH, change, on_refusal=form))
