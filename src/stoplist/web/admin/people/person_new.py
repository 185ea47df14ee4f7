"""Add a person, with a first role. Source: docs/interface.md section D11."""

from stoplist.errors import Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.staff.people import create_person
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import link_page, link_sender, person_path

_PATH = "/settings/people/new"
_ADMINISTRATOR = "administrator"
_ACCESS_TEXTS = (
    *ROLE_TEXTS,
    (_ADMINISTRATOR, "Administrator: full access to everything"),
    ("none", "No access yet"),
)


async def form(request: PageRequest) -> HtmlPage:
    """Show the form for an e-mail address and a first role."""
    request.actor.require_administrator()
    organizations = [one for one in await list_organizations(request.actor, request.database) if not one.is_closed]
    return HtmlPage("people/person_new.html", {"organizations": organizations, "access_options": _ACCESS_TEXTS})


async def create(request: PageRequest) -> HtmlPage:
    """Create the person; send them their sign-in link or, if this deployment sends no e-mail, show it once."""
    access, org_slug = request.form.text("role"), request.form.text("org_slug")
    has_role = access not in (_ADMINISTRATOR, "none")
    if has_role and not org_slug:
        raise Refused("Choose an organization for the role.", field="org_slug")
    link = await create_person(
        request.actor,
        request.database,
        request.clock,
        email=request.form.text("email"),
        is_administrator=access == _ADMINISTRATOR,
        org_slug=org_slug if has_role else None,
        role=read_role(request) if has_role else None,
        send=link_sender(request),
    )
    return link_page(request, link, back=person_path(link.person.email))


ROUTES = (get(_PATH, form), post(_PATH, create, on_refusal=form))
