"""A person within an organization: role and sign-in link. Source: docs/interface.md section D11."""

from stoplist.errors import Missing
from stoplist.organizations.organizations import show_organization
from stoplist.staff.model import Person
from stoplist.staff.people import people_of
from stoplist.staff.roles import set_role
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import create_link, link_form, person_path

_PATH = "/organizations/{slug}/people/{email:path}"
_ROLE_PATH = f"{_PATH}/role"
_REMOVE_PATH = f"{_PATH}/remove"
_LINK_PATH = f"{_PATH}/link"


async def show(request: PageRequest) -> HtmlPage:
    """Show the person and their role."""
    return await _page(request, "organizations/organization_person.html")


async def change(request: PageRequest) -> Redirect:
    """Save the role."""
    slug = request.path["slug"]
    person = await set_role(
        request.actor,
        request.database,
        request.clock,
        email=request.path["email"],
        org_slug=slug,
        role=read_role(request),
    )
    return Redirect(person_path(person.email, slug), note="role-set")


async def remove_form(request: PageRequest) -> HtmlPage:
    """Show what removing the role means."""
    return await _page(request, "organizations/organization_person_remove.html")


async def remove(request: PageRequest) -> Redirect:
    """Remove the role."""
    slug = request.path["slug"]
    await set_role(
        request.actor, request.database, request.clock, email=request.path["email"], org_slug=slug, role=None
    )
    return Redirect(f"/organizations/{slug}", note="role-removed")


async def new_link_form(request: PageRequest) -> HtmlPage:
    """Show what a new sign-in link does to earlier ones."""
    return link_form(request, await _person(request))


async def _page(request: PageRequest, template: str) -> HtmlPage:
    person = await _person(request)
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    here = person_path(person.email, organization.slug)
    return HtmlPage(template, {"organization": organization, "person": person, "here": here, "roles": ROLE_TEXTS})


async def _person(request: PageRequest) -> Person:
    people = await people_of(request.actor, request.database, org_slug=request.path["slug"])
    for person in people:
        if person.email == request.path["email"]:
            return person
    raise Missing("This organization has no person with that e-mail address.")


ROUTES = (
    get(_LINK_PATH, new_link_form),
    post(_LINK_PATH, create_link, on_refusal=new_link_form),
    get(_REMOVE_PATH, remove_form),
    post(_REMOVE_PATH, remove, on_refusal=remove_form),
    post(_ROLE_PATH, change, on_refusal=show),
    get(_PATH, show),
)
