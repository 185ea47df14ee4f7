"""A person, for administrators: rights, ways in, sessions. Source: docs/interface.md section D11."""

from stoplist.errors import Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.staff.people import set_role, show_person
from stoplist.staff.sessions import end_session, list_sessions
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import person_path

_PATH = "/settings/people/{email:path}"


async def show(visit: Visit) -> Page:
    """The person's page."""
    visit.actor.must_be_administrator()
    person = await show_person(visit.actor, visit.database, email=visit.path["email"])
    organizations = await list_organizations(visit.actor, visit.database)
    return Page(
        "people/person.html",
        {
            "person": person,
            "here": person_path(person.email),
            "others": [one for one in organizations if one.slug not in person.roles and not one.is_closed],
            "roles": ROLE_TEXTS,
            "sessions": await list_sessions(
                visit.actor,
                visit.database,
                visit.clock,
                email=person.email,
                current_session_id=visit.session_id,
            ),
        },
    )


async def give_role(visit: Visit) -> Redirect:
    """The person has that role in that organization."""
    visit.actor.must_be_administrator()
    email, org_slug = visit.path["email"], visit.form.text("org_slug")
    if not org_slug:
        raise Refused("Choose the organization in which the role holds.", field="org_slug")
    await set_role(
        visit.actor,
        visit.database,
        visit.clock,
        email=email,
        org_slug=org_slug,
        role=read_role(visit),
    )
    return Redirect(person_path(email), note="role-set")


async def end(visit: Visit) -> Redirect:
    """That session has ended."""
    visit.actor.must_be_administrator()
    await end_session(visit.actor, visit.database, visit.clock, session_id=visit.form.text("session_id"))
    return Redirect(person_path(visit.path["email"]), note="session-ended")


WAYS = (
    post(f"{_PATH}/role", give_role, again=show),
    post(f"{_PATH}/end-session", end, again=show),
    get(_PATH, show),
)
