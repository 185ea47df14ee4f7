"""A person, for administrators: account, roles and sessions. Source: docs/interface.md section D11."""

from stoplist.errors import Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.staff.people import show_person
from stoplist.staff.roles import set_role
from stoplist.staff.sessions import end_session, list_sessions
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import person_path

_PATH = "/settings/people/{email:path}"


async def show(request: PageRequest) -> HtmlPage:
    """Show the person."""
    request.actor.require_administrator()
    person = await show_person(request.actor, request.database, email=request.path["email"])
    organizations = await list_organizations(request.actor, request.database)
    return HtmlPage(
        "people/person.html",
        {
            "person": person,
            "here": person_path(person.email),
            "others": [one for one in organizations if one.slug not in person.roles and not one.is_closed],
            "roles": ROLE_TEXTS,
            "sessions": await list_sessions(
                request.actor,
                request.database,
                request.clock,
                email=person.email,
                current_session_id=request.session_id,
            ),
        },
    )


async def add_role(request: PageRequest) -> Redirect:
    """Give the person a role in an organization."""
    request.actor.require_administrator()
    email, org_slug = request.path["email"], request.form.text("org_slug")
    if not org_slug:
        raise Refused("Choose an organization for the role.", field="org_slug")
    await set_role(
        request.actor,
        request.database,
        request.clock,
        email=email,
        org_slug=org_slug,
        role=read_role(request),
    )
    return Redirect(person_path(email), note="role-set")


async def end(request: PageRequest) -> Redirect:
    """End one session of the person."""
    request.actor.require_administrator()
    await end_session(request.actor, request.database, request.clock, session_id=request.form.text("session_id"))
    return Redirect(person_path(request.path["email"]), note="session-ended")


ROUTES = (
    post(f"{_PATH}/role", add_role, on_refusal=show),
    post(f"{_PATH}/end-session", end, on_refusal=show),
    get(_PATH, show),
)
