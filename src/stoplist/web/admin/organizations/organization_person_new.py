"""Add a person to an organization by e-mail address. Source: docs/interface.md section D11."""

from stoplist.organizations.organizations import show_organization
from stoplist.staff.people import add_to_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import link_page, person_path

_PATH = "/organizations/{slug}/people/new"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form for an e-mail address and a role."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    return HtmlPage("organizations/organization_person_new.html", {"organization": organization, "roles": ROLE_TEXTS})


async def add(request: PageRequest) -> HtmlPage | Redirect:
    """Give the person the role. A new person gets an account, whose sign-in link is shown once."""
    slug = request.path["slug"]
    person, link = await add_to_organization(
        request.actor,
        request.database,
        request.clock,
        email=request.form.text("email"),
        org_slug=slug,
        role=read_role(request),
    )
    back = person_path(person.email, slug)
    if link is None:
        return Redirect(back, note="role-set-known")
    return link_page(request, link, back=back)


ROUTES = (get(_PATH, form), post(_PATH, add, on_refusal=form))
