"""The audit log: a page of entries with filters, and a CSV export. Source: docs/interface.md section D11."""

from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from typing import Any

from stoplist.audit.actions import ACTIONS
from stoplist.audit.reading import AuditEntry, AuditPage, export_audit, list_audit
from stoplist.errors import Missing
from stoplist.rfc3339 import format_ms
from stoplist.slicing import in_slices
from stoplist.staff.model import canonical_or_none
from stoplist.web.admin import csv_lines
from stoplist.web.admin.audit.audit_entry import facts_of, path_of, title_of
from stoplist.web.admin.fields import parse_number
from stoplist.web.admin.filtered_list import read_list, read_period
from stoplist.web.admin.page_request import Download, HtmlPage, PageRequest, get

_PATH, _EXPORT_PATH = "/audit", "/audit/export"
_FILTERS = ("person", "action", "target", "from", "until")
_COLUMNS = (
    "at",
    "actor_kind",
    "actor",
    "action",
    "what",
    "target",
    "organizations",
    "details",
    "source_ip",
    "request_id",
)


async def show(request: PageRequest) -> HtmlPage:
    """Show the newest entries that match the filters; for an invalid filter, the form with the problem."""
    found = await read_list(request, _PATH, _FILTERS, _read_page)
    page = found.page
    entries = [] if page is None else page.entries
    return HtmlPage(
        "audit/audit.html",
        {
            "page": page,
            "rows": [(entry, title_of(entry), path_of(request.actor, entry), facts_of(entry)) for entry in entries],
            "actions": ACTIONS,
            **found.context,
            "older": None if page is None else found.url(before=str(page.older)),
            "export": found.url(_EXPORT_PATH),
        },
        found.status,
    )


async def _read_page(request: PageRequest) -> AuditPage:
    return await list_audit(request.actor, request.database, **_read_filters(request), before_id=_before_id(request))


async def export(request: PageRequest) -> Download:
    """Return all entries that match the filters, newest first, as CSV."""
    slices = export_audit(request.actor, request.database, **_read_filters(request))
    today = datetime.fromtimestamp(request.clock.now_ms() / 1000, UTC).date().isoformat()
    return Download(f"stoplist-audit-{today}.csv", csv_lines.CONTENT_TYPE, _csv_parts(slices))


async def _csv_parts(slices: AsyncIterator[list[AuditEntry]]) -> AsyncGenerator[bytes, None]:
    text = csv_lines.line(_COLUMNS)
    async for entries in slices:
        async for part in in_slices(entries):
            text += "".join(csv_lines.line(_cells(entry)) for entry in part)
        yield text.encode("utf-8", "replace")
        text = ""
    if text:
        yield text.encode()


def _cells(entry: AuditEntry) -> tuple[str, ...]:
    """Return the cells of _COLUMNS; the time is UTC."""
    return (
        format_ms(entry.at_ms),
        entry.actor_kind,
        entry.actor_id,
        entry.action,
        title_of(entry),
        entry.target,
        ", ".join(entry.organizations),
        "; ".join(map(str, facts_of(entry))),
        entry.source_ip or "",
        entry.request_id or "",
    )


def _read_filters(request: PageRequest) -> dict[str, Any]:
    """Return the filters as arguments of list_audit and export_audit. Raises Refused."""
    from_ms, until_ms = read_period(request)
    return {
        "person": _canonical_name(request.query.text("person")),
        "action": request.query.text("action") or None,
        "target": _canonical_name(request.query.text("target")),
        "from_ms": from_ms,
        "until_ms": until_ms,
    }


def _canonical_name(text: str) -> str | None:
    """Return the canonical form of an e-mail address, as the audit stores it; other text unchanged."""
    if not text:
        return None
    return (canonical_or_none(text) if "@" in text else None) or text


def _before_id(request: PageRequest) -> int | None:
    text = request.query.text("before")
    if not text:
        return None
    number = parse_number(text)
    if number is None:
        raise Missing("This page of the audit log does not exist. Start with the newest entries.")
    return number


ROUTES = (get(_PATH, show), get(_EXPORT_PATH, export))
