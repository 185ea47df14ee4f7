"""Sign-in links on the pages of people. Source: docs/interface.md section D11."""

from urllib.parse import quote

from stoplist.db import Transaction
from stoplist.notices.sealed_links import SealedLink, add_link
from stoplist.staff.links import SendLink
from stoplist.staff.model import NewLink, Person
from stoplist.staff.people import new_link
from stoplist.web.admin.page_request import HtmlPage, PageRequest
from stoplist.web.request_context import sign_in_url


def link_form(request: PageRequest, person: Person) -> HtmlPage:
    """Return the page with the form that creates a link for this person."""
    return HtmlPage("people/person_link.html", {"person": person, "back": _back(request, person.email)})


async def create_link(request: PageRequest) -> HtmlPage:
    """Create a sign-in link, which replaces earlier ones, and send it, or show it once."""
    link = await new_link(
        request.actor,
        request.database,
        request.clock,
        email=request.path["email"],
        without_two_step="without_two_step" in request.form,
        secret_keys=request.admin.secret_keys,
        send=link_sender(request),
    )
    return link_page(request, link, back=_back(request, link.person.email))


def link_page(request: PageRequest, link: NewLink, *, back: str) -> HtmlPage:
    """Return the page that shows a link, or says that it is sent; `back` is the path of the page of its person."""
    url = None if request.admin.sends_mail else sign_in_url(request.admin.base_url, link.link_token)
    return HtmlPage("people/person_link_made.html", {"link": link, "url": url, "back": back})


def link_sender(request: PageRequest) -> SendLink | None:
    """Return what sends a sign-in link to its person; None if this deployment sends no e-mail."""
    admin = request.admin
    if not admin.sends_mail:
        return None

    async def send(transaction: Transaction, person_id: int, link: NewLink, now_ms: int) -> None:
        await add_link(
            transaction,
            SealedLink(sign_in_url(admin.base_url, link.link_token)),
            person_id=person_id,
            secret_keys=admin.secret_keys,
            now_ms=now_ms,
            expires_ms=link.expires_ms,
        )

    return send


def person_path(email: str, org_slug: str | None = None) -> str:
    """Return the path of a person's page: the one for administrators, or that within an organization."""
    prefix = "/settings" if org_slug is None else f"/organizations/{org_slug}"
    return f"{prefix}/people/{quote(email, safe='')}"


def _back(request: PageRequest, email: str) -> str:
    return person_path(email, request.path.get("slug"))
