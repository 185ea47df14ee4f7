"""Reverse an import of any size. A server counts first, and then does exactly what the counts state.

Source: docs/interface.md sections D11 (Reversing) and D12.
"""

from stoplist.errors import Refused
from stoplist.lists.imports.model import Import
from stoplist.lists.uploads.requests import request_reversal, request_reversal_counts
from stoplist.organizations.organizations import show_organization
from stoplist.records.reversal_plan import Reversal
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.imports.paths import IMPORT_PATH, import_path
from stoplist.web.admin.imports.states import STATES, status_of
from stoplist.web.admin.opt_outs.paths import feed_path
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = f"{IMPORT_PATH}/reverse"
_COUNTS = ("restored", "corrected", "superseded", "confirmed")


async def form(request: PageRequest) -> HtmlPage:
    """Show the counts if they are known, the progress, or what was taken back."""
    status = await status_of(request)
    request.actor.require_administrator()
    begun = _begun(status.begun)
    result = None if status.work is None else status.work.result
    counts = None if result is None else result.reversal
    return HtmlPage(
        "imports/import_reverse.html",
        {
            "status": status,
            "begun": begun,
            "state": STATES[status.state],
            "organization": await show_organization(request.actor, request.database, status.org_slug),
            "words": CHANNELS[status.channel],
            "here": import_path(status.import_id),
            "feed": feed_path(status.org_slug, CHANNELS[status.channel]),
            "counts": counts,
            "taken_back": None if result is None else result.reversed,
            "error": "" if result is None else result.error,
            "expected": {} if counts is None else {name: getattr(counts, name) for name in _COUNTS},
        },
    )


async def count(request: PageRequest) -> Redirect:
    """Let a server count what the reversal would do."""
    status = await status_of(request)
    await request_reversal_counts(request.actor, request.admin.opt_outs, _begun(status.begun))
    return Redirect(f"{import_path(status.import_id)}/reverse")


async def reverse(request: PageRequest) -> Redirect:
    """Let a server reverse the import if the counts that were shown still hold."""
    status = await status_of(request)
    begun = _begun(status.begun)
    expected = Reversal(
        restored=_number(request, "restored"),
        corrected=_number(request, "corrected"),
        superseded=_number(request, "superseded"),
        confirmed=_number(request, "confirmed"),
    )
    await request_reversal(request.actor, request.admin.opt_outs, begun, expected=expected)
    return Redirect(f"{import_path(status.import_id)}/reverse")


def _begun(begun: Import | None) -> Import:
    if begun is None:
        raise Refused("The import has not begun, so there is nothing to reverse.")
    return begun


def _number(request: PageRequest, name: str) -> int:
    text = request.form.text(name) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise Refused("The counts to confirm are missing. Check the counts below and confirm again.")
    return int(text)


ROUTES = (
    get(_PATH, form),
    post(f"{_PATH}/count", count, on_refusal=form),
    post(_PATH, reverse, on_refusal=form),
)
