"""A new sign-in link for a person, and the page that shows a link this once. Source: docs/interface.md section D11."""

from stoplist.staff.people import show_person
from stoplist.web.admin.page_request import Page, Visit, get, post
from stoplist.web.admin.sign_in_links import link_form, make

_PATH = "/settings/people/{email:path}/link"


async def form(visit: Visit) -> Page:
    """What a new link does to the ones before, and to two-step sign-in."""
    visit.actor.must_be_administrator()
    return link_form(visit, await show_person(visit.actor, visit.database, email=visit.path["email"]))


WAYS = (get(_PATH, form), post(_PATH, make, again=form))
