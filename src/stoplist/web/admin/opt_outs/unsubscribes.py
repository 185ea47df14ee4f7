"""Search for addresses in all organizations and channels; and the list of organizations with their channels.

Addresses are sent by POST and answered on the same page, so that no URL, log or browser history holds them.
Source: docs/interface.md sections D5, D10 and D11.
"""

from stoplist import ids
from stoplist.errors import Missing, Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.records.search import SearchResult, search
from stoplist.records.search_terms import MAX_TERMS
from stoplist.records.submissions import find_submission
from stoplist.rights.reads import note_read
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.opt_outs.countries import country_options
from stoplist.web.admin.organization_filter import filtered_organizations
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/unsubscribes"


async def show(request: PageRequest) -> HtmlPage:
    """Show the search form and the organizations that the person may see."""
    return await _page(request, None)


async def find(request: PageRequest) -> HtmlPage | Redirect:
    """Show every record of the addresses; for a submission id, redirect to the submission."""
    text = "\n".join(filter(None, (request.form.text("address"), request.form.text("addresses"))))
    if text.startswith(ids.SUBMISSION_ID) and "@" not in text:
        return Redirect(f"{_PATH}/{await _submission_id(request, text)}")
    found = await search(request.actor, request.database, text, country=request.form.text("country"))
    for address in found.addresses:
        organizations = {one.org_slug for one in address.records}
        await note_read(request.actor, request.admin.opt_outs, address.canonical, organizations=organizations)
    return await _page(request, found)


async def _submission_id(request: PageRequest, text: str) -> str:
    try:
        return (await find_submission(request.actor, request.database, text)).submission_id
    except Missing as missing:
        raise Refused(missing.text, field="address") from None


async def _page(request: PageRequest, found: SearchResult | None) -> HtmlPage:
    visible = await list_organizations(request.actor, request.database)
    needs_country = request.refusal is not None and request.refusal.field == "country"
    return HtmlPage(
        "opt_outs/unsubscribes.html",
        {
            "found": found,
            "max_terms": MAX_TERMS,
            "countries": country_options() if needs_country or request.form.text("country") else [],
            "may_add": any(not one.is_closed and request.actor.administers([one.slug]) for one in visible),
            "may_erase": request.may_audit,
            "channels": CHANNELS,
            "words": CHANNELS,
        }
        | filtered_organizations(request, visible),
    )


ROUTES = (get(_PATH, show), post(_PATH, find, on_refusal=show))
