"""Erase the person of a record, who stays barred. The page states the consequences and the counts first.

Source: docs/interface.md section D13.
"""

from stoplist.errors import Missing, Refused
from stoplist.organizations.store import require_admin_of
from stoplist.records.history import show_record
from stoplist.rights.erasure import erase_person, find_known_feeds, needs_upgrade_confirmation
from stoplist.web.admin.opt_outs.paths import change_of, channel_of, feed_path
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/unsubscribes/{org_slug}/{channel}/{seq}/erase"
WORD = "erase"


async def form(request: PageRequest) -> HtmlPage:
    """Show what erasing means, and how many records there are."""
    address = await _address(request)
    channel, org_slug = channel_of(request), request.path["org_slug"]
    stores, actor = request.admin.opt_outs, request.actor
    own = await find_known_feeds(actor, stores, channel, address, org_slug=org_slug)
    every = await find_known_feeds(actor, stores, channel, address, org_slug=None) if actor.is_administrator else []
    return HtmlPage(
        "opt_outs/record_erase.html",
        {
            "address": address,
            "org_slug": org_slug,
            "records": sum(feed.records for feed in own),
            "every_records": sum(feed.records for feed in every),
            "every_organizations": len(every),
            "asks_for_upgrade": await needs_upgrade_confirmation(stores),
            "words": channel,
            "here": f"{feed_path(org_slug, channel)}/{change_of(request)}",
            "feed": feed_path(org_slug, channel),
            "word": WORD,
        },
    )


async def erase(request: PageRequest) -> Redirect:
    """Erase the person, if the word was typed."""
    address = await _address(request)
    channel, org_slug = channel_of(request), request.path["org_slug"]
    require_word(request)
    await erase_person(
        request.actor,
        request.admin.opt_outs,
        channel,
        address,
        org_slug=None if "everywhere" in request.form else org_slug,
        is_all_upgraded="all_upgraded" in request.form,
    )
    return Redirect(f"{feed_path(org_slug, channel)}/{change_of(request)}", note="person-erased")


def require_word(request: PageRequest) -> None:
    """Raise Refused (`word`) unless the word was typed."""
    if request.form.text("word").strip().lower() != WORD:
        raise Refused(f"Type the word {WORD}.", field="word")


async def _address(request: PageRequest) -> str:
    """Return the address of the record, for those who may erase it."""
    org_slug = request.path["org_slug"]
    require_admin_of(request.actor, org_slug)
    record = await show_record(
        request.actor, request.database, org_slug=org_slug, channel=channel_of(request), seq=change_of(request)
    )
    if record.address is None:
        raise Missing("This person was erased already.")
    return record.address


ROUTES = (get(_PATH, form), post(_PATH, erase, on_refusal=form))
