"""The filters of lists of opt-outs, as fields of a form. Source: docs/interface.md sections D5, D6 and D11."""

from typing import Final, NamedTuple

from stoplist.web.admin.filtered_list import read_period
from stoplist.web.admin.page_request import PageRequest

FILTER_FIELDS: Final = ("group", "status", "reason", "from", "until")


class RecordFilters(NamedTuple):
    """The filters that were set; None for the others. Of the two times (ms UTC) the first is inclusive."""

    group: str | None
    status: str | None
    reason: str | None
    recorded_from_ms: int | None
    recorded_until_ms: int | None


def read_filters(request: PageRequest) -> RecordFilters:
    """Return the filters of the query. Raise Refused for a malformed day, and for an end before the start."""
    from_ms, until_ms = read_period(request)
    return RecordFilters(
        group=request.query.text("group") or None,
        status=request.query.text("status") or None,
        reason=request.query.text("reason") or None,
        recorded_from_ms=from_ms,
        recorded_until_ms=until_ms,
    )
