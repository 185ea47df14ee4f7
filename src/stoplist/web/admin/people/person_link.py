"""Create a sign-in link for a person. Source: docs/interface.md section D11."""

from stoplist.staff.people import show_person
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get, post
from stoplist.web.admin.sign_in_links import create_link, link_form

_PATH = "/settings/people/{email:path}/link"


async def form(request: PageRequest) -> HtmlPage:
    """Show what a new link does to earlier links and to two-step sign-in."""
    request.actor.require_administrator()
    return link_form(request, await show_person(request.actor, request.database, email=request.path["email"]))


ROUTES = (get(_PATH, form), post(_PATH, create_link, on_refusal=form))
