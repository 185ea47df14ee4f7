"""One person of an organization: another role, none, a new sign-in link. Source: docs/interface.md section D11."""

from stoplist.errors import Missing
from stoplist.organizations.organizations import show_organization
from stoplist.staff.model import Person
from stoplist.staff.people import people_of, set_role
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import link_form, make, person_path

_PATH = "/organizations/{slug}/people/{email:path}"
_ROLE_PATH = f"{_PATH}/role"
_REMOVE_PATH = f"{_PATH}/remove"
_LINK_PATH = f"{_PATH}/link"


async def show(request: PageRequest) -> HtmlPage:
    """The role as it is, and what can be done with it."""
    return await _page(request, "organizations/organization_person.html")


async def change(request: PageRequest) -> Redirect:
    """The person has the role of the form."""
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
    """What the person will see no more."""
    return await _page(request, "organizations/organization_person_remove.html")


async def remove(request: PageRequest) -> Redirect:
    """The person has no role in the organization."""
    slug = request.path["slug"]
    await set_role(
        request.actor, request.database, request.clock, email=request.path["email"], org_slug=slug, role=None
    )
    return Redirect(f"/organizations/{slug}", note="role-removed")


async def new_link_form(request: PageRequest) -> HtmlPage:
    """What a new sign-in link does to the ones before."""
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
    raise Missing("There is nobody with that e-mail address in this organization.")


ROUTES = (
    get(_LINK_PATH, new_link_form),
    post(_LINK_PATH, make, again=new_link_form),
    get(_REMOVE_PATH, remove_form),
    post(_REMOVE_PATH, remove, again=remove_form),
    post(_ROLE_PATH, change, again=show),
    get(_PATH, show),
)
