"""Why did we not write to her? One address, looked for everywhere; and the organizations with their channels.

The address is posted and answered on the same page, so that it stands in no URL, no log and no history of a browser.
Source: docs/interface.md sections D5, D10 and D11.
"""

from stoplist import ids
from stoplist.errors import Missing, Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations
from stoplist.records.search import Found, search
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.reference import prose

_PATH = "/unsubscribes"
_MOST_SHOWN = 50


async def show(request: PageRequest) -> HtmlPage:
    """The search, and the organizations that the person sees."""
    return await _page(request, None)


async def find(request: PageRequest) -> HtmlPage | Redirect:
    """What is recorded of the address, everywhere; or to the submission, where its id was typed."""
    text = request.form.text("address")
    if text.startswith(ids.SUBMISSION_ID) and "@" not in text:
        return Redirect(f"{_PATH}/{await _submission_id(request, text)}")
    return await _page(request, await search(request.actor, request.database, text))


async def _submission_id(request: PageRequest, text: str) -> str:
    try:
        return (await find_submission(request.actor, request.database, text)).submission_id
    except Missing as missing:
        raise Refused(missing.text, field="address") from None


async def _page(request: PageRequest, found: Found | None) -> HtmlPage:
    seen = await list_organizations(request.actor, request.database)
    wanted = request.query.text("organization")
    named = [one for one in seen if _is_named(one, wanted.casefold())]
    return HtmlPage(
        "opt_outs/unsubscribes.html",
        {
            "found": found,
            "wanted": wanted,
            "organizations": named[:_MOST_SHOWN],
            "hidden": len(named[_MOST_SHOWN:]),
            "has_many": len(seen) > _MOST_SHOWN,
            "has_any": bool(seen),
            "may_add": any(not one.is_closed and request.actor.administers([one.slug]) for one in seen),
            "channels": CHANNELS,
            "words": prose.CHANNELS,
        },
    )


def _is_named(organization: Organization, wanted: str) -> bool:
    return wanted in organization.slug or wanted in organization.name.casefold()


ROUTES = (get(_PATH, show), post(_PATH, find, again=show))
