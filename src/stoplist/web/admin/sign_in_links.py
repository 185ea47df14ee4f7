"""Sign-in links as pages of people show them. Source: docs/interface.md section D11."""

from urllib.parse import quote

from stoplist.staff.model import NewLink, Person
from stoplist.staff.people import new_link
from stoplist.web.admin.page_request import HtmlPage, PageRequest
from stoplist.web.request_context import sign_in_url


def link_form(request: PageRequest, person: Person) -> HtmlPage:
    """The form for this person, at the address of whoever asks."""
    return HtmlPage("people/person_link.html", {"person": person, "back": _back(request, person.email)})


async def make(request: PageRequest) -> HtmlPage:
    """There is this one link, which is shown now."""
    made = await new_link(
        request.actor,
        request.database,
        request.clock,
        email=request.path["email"],
        without_two_step="without_two_step" in request.form,
    )
    return link_page(request, made, back=_back(request, made.person.email))


def link_page(request: PageRequest, made: NewLink, *, back: str) -> HtmlPage:
    """The answer that shows a link; `back` is the page of whom it is for."""
    link = sign_in_url(request.admin.base_url, made.link_token)
    return HtmlPage("people/person_link_made.html", {"made": made, "link": link, "back": back})


def person_path(email: str, org_slug: str | None = None) -> str:
    """Where a person is shown: to administrators, or as one of an organization."""
    beginning = "/settings" if org_slug is None else f"/organizations/{org_slug}"
    return f"{beginning}/people/{quote(email, safe='')}"


def _back(request: PageRequest, email: str) -> str:
    return person_path(email, request.path.get("slug"))
