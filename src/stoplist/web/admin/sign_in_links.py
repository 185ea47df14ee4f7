"""Sign-in links as pages of people show them. Source: docs/interface.md section D11."""

from urllib.parse import quote

from stoplist.staff.model import NewLink, Person
from stoplist.staff.people import new_link
from stoplist.web.admin.page_request import Page, Visit
from stoplist.web.request_context import sign_in_url


def link_form(visit: Visit, person: Person) -> Page:
    """The form for this person, at the address of whoever asks."""
    return Page("people/person_link.html", {"person": person, "back": _back(visit, person.email)})


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
    return Page("people/person_link_made.html", {"made": made, "link": link, "back": back})


def person_path(email: str, org_slug: str | None = None) -> str:
    """Where a person is shown: to administrators, or as one of an organization."""
    beginning = "/settings" if org_slug is None else f"/organizations/{org_slug}"
    return f"{beginning}/people/{quote(email, safe='')}"


def _back(visit: Visit, email: str) -> str:
    return person_path(email, visit.path.get("slug"))
