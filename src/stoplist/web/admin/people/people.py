"""Settings → People: everybody who may use these pages, for administrators. Source: docs/interface.md section D11."""

from stoplist.staff.people import list_people
from stoplist.web.admin.page_request import Page, Visit, get


async def show(visit: Visit) -> Page:
    """The table, by e-mail address."""
    return Page("people/people.html", {"people": await list_people(visit.actor, visit.database)})


WAYS = (get("/settings/people", show),)
