"""Settings → People, for administrators: everyone with an account. Source: docs/interface.md section D11."""

from stoplist.staff.people import list_people
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show everyone by e-mail address."""
    return HtmlPage("people/people.html", {"people": await list_people(request.actor, request.database)})


ROUTES = (get("/settings/people", show),)
