"""A new sign-in link for a person, and the page that shows a link this once. Source: docs/interface.md section D11."""

from stoplist.staff.people import show_person
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get, post
from stoplist.web.admin.sign_in_links import link_form, make

_PATH = "/settings/people/{email:path}/link"


async def form(request: PageRequest) -> HtmlPage:
    """What a new link does to the ones before, and to two-step sign-in."""
    request.actor.must_be_administrator()
    return link_form(request, await show_person(request.actor, request.database, email=request.path["email"]))


ROUTES = (get(_PATH, form), post(_PATH, make, again=form))
