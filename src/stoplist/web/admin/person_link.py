"""A new sign-in link for a person, and the page that shows a link this once. Source: docs/interface.md section D11."""

from urllib.parse import quote

from stoplist.staff.model import NewLink, Person
from stoplist.staff.people import new_link, show_person
from stoplist.web.admin.visit import Page, Visit, get, post
from stoplist.web.exchange import sign_in_url

_PATH = "/settings/people/{email:path}/link"


async def form(visit: Visit) -> Page:
    """What a new link does to the ones before, and to two-step sign-in."""
    visit.actor.must_be_administrator()
    return link_form(visit, await show_person(visit.actor, visit.database, email=visit.path["email"]))


def link_form(visit: Visit, person: Person) -> Page:
    """The form for this person, at the address of whoever asks."""
    return Page("person_link.html", {"person": person, "back": _back(visit, person.email)})


async def make(visit: Visit) -> Page:
    """There is this one link, which is shown now."""
    made = await new_link(
        visit.actor,
        visit.database,
        visit.clock,
        email=visit.path["email"],
        without_two_step="without_two_step" in visit.form,
    )
    return link_page(visit, made, back=_back(visit, made.person.email))


def link_page(visit: Visit, made: NewLink, *, back: str) -> Page:
    """The answer that shows a link; `back` is the page of whom it is for."""
    link = sign_in_url(visit.desk.base_url, made.link_token)
    return Page("person_link_made.html", {"made": made, "link": link, "back": back})


def person_path(email: str, org_slug: str | None = None) -> str:
    """Where a person is shown: to administrators, or as one of an organization."""
    beginning = "/settings" if org_slug is None else f"/organizations/{org_slug}"
    return f"{beginning}/people/{quote(email, safe='')}"


def _back(visit: Visit, email: str) -> str:
    return person_path(email, visit.path.get("slug"))


WAYS = (get(_PATH, form), post(_PATH, make, again=form))
