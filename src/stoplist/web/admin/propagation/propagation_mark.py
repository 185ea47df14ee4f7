"""Mark that a key must follow a feed, or has stopped. The page states the consequences first.

Source: docs/interface.md section D14, Propagation.
"""

from stoplist.errors import Missing, Refused
from stoplist.organizations.store import require_admin_of
from stoplist.proof.follower import MARKS, Mark
from stoplist.proof.marks import set_mark
from stoplist.proof.propagation import KeyPropagation, propagation
from stoplist.web.admin.key_use import flush_positions
from stoplist.web.admin.opt_outs.paths import channel_of
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.admin.propagation.propagation import PATH as LIST_PATH

PATH = LIST_PATH + "/{org_slug}/{channel}/{client_id}"
_NONE = "none"


async def form(request: PageRequest) -> HtmlPage:
    """Show what each mark means for this key and feed."""
    one = await _of_path(request)
    return HtmlPage(
        "propagation/propagation_mark.html",
        {
            "one": one,
            "here": PATH.format(org_slug=one.org_slug, channel=one.channel, client_id=one.client_id),
            "list": LIST_PATH,
            "words": channel_of(request),
            "hours": request.admin.propagation_hours,
            "chosen": one.mark or _NONE,
        },
    )


async def change(request: PageRequest) -> Redirect:
    """Set the mark."""
    await set_mark(
        request.actor,
        request.admin.opt_outs,
        org_slug=request.path["org_slug"],
        channel=channel_of(request),
        client_id=request.path["client_id"],
        group_id=_group_id(request),
        mark=_mark(request.form.text("mark")),
    )
    return Redirect(LIST_PATH, note="propagation-marked")


async def _of_path(request: PageRequest) -> KeyPropagation:
    """Return the key and feed of the path, and the group of the query. Raise Missing, or Forbidden for a viewer."""
    org_slug, channel = request.path["org_slug"], channel_of(request)
    require_admin_of(request.actor, org_slug)
    await flush_positions(request)
    found = await propagation(
        request.actor,
        request.admin.opt_outs,
        hours=request.admin.propagation_hours,
        org_slug=org_slug,
        channel=channel,
    )
    for one in found:
        if (one.client_id, one.group_id) == (request.path["client_id"], _group_id(request)):
            return one
    raise Missing("This key does not read this feed.")


def _group_id(request: PageRequest) -> str | None:
    return request.form.text("group") or request.query.text("group") or None


def _mark(text: str) -> Mark | None:
    if text == _NONE:
        return None
    for mark in MARKS:
        if text == mark:
            return mark
    raise Refused("Choose one of the three.", field="mark")


ROUTES = (get(PATH, form), post(PATH, change, on_refusal=form))
