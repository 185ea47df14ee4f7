"""Search for an address in all organizations and channels; and the list of organizations with their channels.

The address is sent by POST and answered on the same page, so that no URL, log or browser history holds it.
Source: docs/interface.md sections D5, D10 and D11.
"""

from stoplist import ids
from stoplist.errors import Missing, Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations
from stoplist.records.search import SearchResult, search
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/unsubscribes"
_MAX_SHOWN = 50


async def show(request: PageRequest) -> HtmlPage:
    """Show the search form and the organizations that the person may see."""
    return await _page(request, None)


async def find(request: PageRequest) -> HtmlPage | Redirect:
    """Show every record of the address; for a submission id, redirect to the submission."""
    text = request.form.text("address")
    if text.startswith(ids.SUBMISSION_ID) and "@" not in text:
        return Redirect(f"{_PATH}/{await _submission_id(request, text)}")
    return await _page(request, await search(request.actor, request.database, text))


async def _submission_id(request: PageRequest, text: str) -> str:
    try:
        return (await find_submission(request.actor, request.database, text)).submission_id
    except Missing as missing:
        raise Refused(missing.text, field="address") from None


async def _page(request: PageRequest, found: SearchResult | None) -> HtmlPage:
    visible = await list_organizations(request.actor, request.database)
    name = request.query.text("organization")
    matching = [one for one in visible if _matches(one, name.casefold())]
    return HtmlPage(
        "opt_outs/unsubscribes.html",
        {
            "found": found,
            "org_name": name,
            "organizations": matching[:_MAX_SHOWN],
            "hidden": len(matching[_MAX_SHOWN:]),
            "has_many": len(visible) > _MAX_SHOWN,
            "has_any": bool(visible),
            "may_add": any(not one.is_closed and request.actor.administers([one.slug]) for one in visible),
            "channels": CHANNELS,
            "words": CHANNELS,
        },
    )


def _matches(organization: Organization, name: str) -> bool:
    return name in organization.slug or name in organization.name.casefold()


ROUTES = (get(_PATH, show), post(_PATH, find, on_refusal=show))
