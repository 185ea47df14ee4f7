"""Erase the person of an address, in one organization or in several at once, even if nothing is recorded about them.

The address is posted, so that no URL, log or browser history holds it. Source: docs/interface.md section D13.
"""

from stoplist.errors import Refused
from stoplist.rights.erasure import (
    KnownFeed,
    canonical_address,
    erase_person,
    find_known_feeds,
    needs_upgrade_confirmation,
)
from stoplist.unsubscribes.channel import CHANNELS, Channel
from stoplist.web.admin.opt_outs.record_erase import require_word
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

PATH = "/unsubscribes/erase"


async def form(request: PageRequest) -> HtmlPage:
    """Ask for an address; once it is posted, show what erasing means, and how many records there are."""
    address, known = "", list[KnownFeed]()
    if "address" not in request.form and not request.may_audit:
        request.actor.require_administrator()
    try:
        if "address" in request.form:
            address, known = await _known(request)
    except Refused as refusal:
        request.refusal = request.refusal or refusal
    counts = [(one.org_slug, one.records) for one in known]
    return HtmlPage(
        "opt_outs/address_erase.html",
        {
            "address": address,
            "counts": counts,
            "records": sum(count for _, count in counts),
            "channels": CHANNELS,
            "words": CHANNELS.get(request.form.text("channel")),
            "asks_for_upgrade": await needs_upgrade_confirmation(request.admin.opt_outs),
        },
    )


async def erase(request: PageRequest) -> HtmlPage | Redirect:
    """Show the counts of the posted address; erase the person once the word was typed.

    What imports have kept of an address goes even if there is no record.
    """
    address, known = await _known(request)
    if "word" not in request.form:
        return await form(request)
    require_word(request)
    done = await erase_person(
        request.actor,
        request.admin.opt_outs,
        address_channel(request),
        address,
        org_slug=request.form.text("where") or None,
        is_all_upgraded="all_upgraded" in request.form,
    )
    if known:
        return Redirect("/unsubscribes", note="person-erased")
    return Redirect("/unsubscribes", note="person-left-imports" if done else "person-unknown")


def address_channel(request: PageRequest) -> Channel:
    """Return the posted channel; Refused (`channel`) if there is none of that name."""
    channel = CHANNELS.get(request.form.text("channel"))
    if channel is None:
        raise Refused("Choose what the address is.", field="channel")
    return channel


async def _known(request: PageRequest) -> tuple[str, list[KnownFeed]]:
    """Return the canonical form of the posted address, and where the person may erase it."""
    channel = address_channel(request)
    address = canonical_address(channel, request.form.text("address"))
    return address, await find_known_feeds(request.actor, request.admin.opt_outs, channel, address, org_slug=None)


ROUTES = (get(PATH, form), post(PATH, erase, on_refusal=form))
