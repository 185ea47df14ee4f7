"""Add a person, with the first right. Source: docs/interface.md section D11."""

from stoplist.errors import Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.staff.people import create_person
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import link_page, person_path

_PATH = "/settings/people/new"
_ADMINISTRATOR = "administrator"
_RIGHT_TEXTS = (
    *ROLE_TEXTS,
    (_ADMINISTRATOR, "Administrator: may do everything, in every organization"),
    ("none", "None yet"),
)


async def form(request: PageRequest) -> HtmlPage:
    """An e-mail address and a right."""
    request.actor.must_be_administrator()
    organizations = [one for one in await list_organizations(request.actor, request.database) if not one.is_closed]
    return HtmlPage("people/person_new.html", {"organizations": organizations, "rights": _RIGHT_TEXTS})


async def create(request: PageRequest) -> HtmlPage:
    """The person exists; the sign-in link is shown this once."""
    right, org_slug = request.form.text("role"), request.form.text("org_slug")
    has_role = right not in (_ADMINISTRATOR, "none")
    if has_role and not org_slug:
        raise Refused("Choose the organization in which the role holds.", field="org_slug")
    made = await create_person(
        request.actor,
        request.database,
        request.clock,
        email=request.form.text("email"),
        is_administrator=right == _ADMINISTRATOR,
        org_slug=org_slug if has_role else None,
        role=read_role(request) if has_role else None,
    )
    return link_page(request, made, back=person_path(made.person.email))


ROUTES = (get(_PATH, form), post(_PATH, create, again=form))
