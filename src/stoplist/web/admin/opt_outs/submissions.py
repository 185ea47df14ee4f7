"""The submissions that a person's organizations received, newest first, and their filters.

Source: docs/interface.md sections D6 and D11.
"""

import re
from typing import Any

from stoplist.errors import Missing, Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.records.submission_list import Position, SubmissionPage, list_submissions
from stoplist.unsubscribes.channel import CHANNELS, Channel
from stoplist.web.admin.fields import parse_number
from stoplist.web.admin.filtered_list import read_list, read_period
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get

_PATH = "/unsubscribes/submissions"
_FILTERS = ("organization", "channel", "key", "from", "until")
_POSITION = re.compile(r"([0-9]{1,19})-(sub_[0-9A-Za-z]{22})", re.ASCII)


async def show(request: PageRequest) -> HtmlPage:
    """Show a page of the submissions that match the filters; for an invalid filter, the form with the problem."""
    found = await read_list(request, _PATH, _FILTERS, _read_page)
    page = found.page
    return HtmlPage(
        "opt_outs/submissions.html",
        {
            "here": _PATH,
            "organizations": await list_organizations(request.actor, request.database),
            "channels": CHANNELS,
            "words": CHANNELS,
            **found.context,
            "page": page,
            "older": None if page is None or page.older is None else found.url(before=_position_text(page.older)),
        },
        found.status,
    )


async def _read_page(request: PageRequest) -> SubmissionPage:
    from_ms, until_ms = read_period(request)
    values: dict[str, Any] = {
        "org_slug": request.query.text("organization") or None,
        "channel": _channel(request.query.text("channel")),
        "client_id": request.query.text("key") or None,
        "from_ms": from_ms,
        "until_ms": until_ms,
        "before": _position(request.query.text("before")),
    }
    return await list_submissions(request.actor, request.database, **values)


def _channel(name: str) -> Channel | None:
    if name and name not in CHANNELS:
        raise Refused(f"There is no such channel: choose one of {', '.join(CHANNELS)}.", field="channel")
    return CHANNELS.get(name)


def _position(text: str) -> Position | None:
    if not text:
        return None
    parts = _POSITION.fullmatch(text)
    received_ms = None if parts is None else parse_number(parts[1])
    if parts is None or received_ms is None:
        raise Missing("There is no such page of submissions. Begin with the newest.")
    return Position(received_ms, parts[2])


def _position_text(position: Position) -> str:
    return f"{position.received_ms}-{position.submission_id}"


ROUTES = (get(_PATH, show),)
