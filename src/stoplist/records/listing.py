"""The records of one organization and channel, newest change first, for people who browse.

A search for rare records goes on for SEARCH_NS within one request, in slices of a millisecond or two, and says how far
it came: enough for half a million records and more. An index of the filters would find them at once, but every batch
would write to it, every feed would grow by a quarter, and writers would wait while it is built.
Source: docs/interface.md sections D5, D6 and D11.
"""

from typing import Any, NamedTuple

import msgspec

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import load_queries
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.target import group_names, group_of
from stoplist.records.filters import group_filter_number, require_known_words, seq_bounds
from stoplist.records.model import RecordState, state_fields
from stoplist.slicing import TimeLimit, yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id

_QUERIES = load_queries(__package__)
_BEFORE = _QUERIES["records_before"]
_COUNT_BETWEEN = _QUERIES["count_between"]
_LAST_RECORDED = _QUERIES["last_recorded"]
_SEQ_BEFORE = _QUERIES["seq_before"]

SEARCH_NS = 1_000_000_000
DEFAULT_RECORDS = 50
_ROWS_PER_SCAN = 2_000  # a millisecond or two, during which no other request runs
_GROWTH_FACTOR = 4  # frequent matches are in the first scan; rare matches need few queries
_END_OF_TIME_MS = 2**62


class ListedRecord(RecordState, frozen=True, kw_only=True):
    """A record of one feed."""

    id: str
    address: str


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of records. `older` is the `before_seq` of the next page, None if there are no older records.

    `examined` is the number of records examined. With `is_cut` the time of a search was over: the page shows
    the matches so far, possibly none; `newest_ms` and `oldest_ms` say when the first and the last examined record were
    recorded (None if that record has changed meanwhile).
    """

    org_slug: str
    org_name: str
    channel: str
    records: list[ListedRecord]
    older: int | None
    examined: int
    is_cut: bool
    newest_ms: int | None
    oldest_ms: int | None


class _Filters(NamedTuple):
    """The filters of a listing; None matches every record."""

    group_no: int | None
    status: str | None
    reason: str | None
    recorded_from_ms: int | None
    recorded_until_ms: int | None

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the SQL statement."""
        first_ms = -_END_OF_TIME_MS if self.recorded_from_ms is None else self.recorded_from_ms
        end_ms = _END_OF_TIME_MS if self.recorded_until_ms is None else self.recorded_until_ms
        return {**self._asdict(), "recorded_from_ms": first_ms, "recorded_until_ms": end_ms}


class _Scan(NamedTuple):
    """The matching rows, where the next scan starts, and how many records were examined."""

    rows: list[Row]
    older: int | None
    examined: int


async def list_records(
    actor: Actor,
    database: Database,
    *,
    org_slug: str,
    channel: Channel,
    group: str | None = None,
    status: str | None = None,
    reason: str | None = None,
    recorded_from_ms: int | None = None,
    recorded_until_ms: int | None = None,
    before_seq: int | None = None,
    limit: int = DEFAULT_RECORDS,
) -> Listing:
    """Return the newest matching records before the change `before_seq`, each at its latest change.

    A filter that is None matches everything. `group` is a `group_id` or ALL_GROUPS_FILTER. Of the two times (ms UTC)
    the first is inclusive. No record appears on two pages; one that changes meanwhile moves to the newest. Raise
    Missing for an organization that the actor may not see, Refused (`group`, `status`, `reason`) for a filter that
    nothing can match.
    """
    organization = await show_organization(actor, database, org_slug)
    names = await group_names(database, [organization.organization_id])
    require_known_words(status=status, reason=reason)
    numbers = {name.group_id: number for (_, number), name in names.items()}
    filters = _Filters(
        None if group is None else group_filter_number(group, numbers, org_slug=organization.slug),
        status,
        reason,
        recorded_from_ms,
        recorded_until_ms,
    )
    number = feed_id(organization.organization_id, channel)
    low, high = await seq_bounds(
        database, number, from_ms=recorded_from_ms, until_ms=recorded_until_ms, before_seq=before_seq
    )
    scan = await _scan(database, number, filters, low=low, high=high, limit=limit)
    cut_at = scan.older if len(scan.rows) < limit else None
    return Listing(
        org_slug=organization.slug,
        org_name=organization.name,
        channel=channel.name,
        records=[
            ListedRecord(
                id=row["id"],
                address=row["address"],
                **state_fields(row, group_of(names, organization.organization_id, row["group_no"])),
            )
            for row in scan.rows
        ],
        older=scan.older,
        examined=scan.examined,
        is_cut=cut_at is not None,
        newest_ms=None if cut_at is None else await _recorded_ms(database, number, cut_at, high),
        oldest_ms=None if cut_at is None else await _recorded_ms(database, number, cut_at, cut_at + 1),
    )


async def _scan(database: Database, number: int, filters: _Filters, *, low: int, high: int, limit: int) -> _Scan:
    """Scan downwards until the page is full, the feed ends, or SEARCH_NS has passed."""
    rows: list[Row] = []
    before, examined = high, 0
    next_rows = limit + 1  # the extra row tells whether there is an older page
    time_limit = TimeLimit(SEARCH_NS)
    while True:
        scan_rows = min(next_rows, _ROWS_PER_SCAN)
        page = await database.one(_SEQ_BEFORE, feed_id=number, before=before, from_seq=low, examined=scan_rows)
        if page is None or page["seq"] is None:
            return _Scan(rows, None, examined)
        bounds: dict[str, Any] = {"feed_id": number, "before": before, "from_seq": page["seq"]}
        # A record that changes meanwhile moves from this range to the newest; none ever enters the range.
        rows += await database.all(_BEFORE, **bounds, **filters.parameters, most=limit + 1 - len(rows))
        if len(rows) > limit:
            return await _full_page(database, bounds, rows[:limit], examined)
        examined += page["examined"]
        before = page["seq"]
        if page["examined"] < scan_rows:
            return _Scan(rows, None, examined)
        if time_limit.is_over:
            return _Scan(rows, before, examined)
        next_rows *= _GROWTH_FACTOR
        await yield_to_loop()


async def _full_page(database: Database, bounds: dict[str, Any], rows: list[Row], examined: int) -> _Scan:
    older = rows[-1]["seq"]
    counted = await database.one(_COUNT_BETWEEN, **{**bounds, "from_seq": older})
    return _Scan(rows, older, examined + (0 if counted is None else counted["records"]))


async def _recorded_ms(database: Database, number: int, from_seq: int, before: int) -> int | None:
    """Return when the last record in this range was recorded; None if it has changed meanwhile and was the only one."""
    row = await database.one(_LAST_RECORDED, feed_id=number, from_seq=from_seq, before=before)
    return None if row is None else int(row["recorded_ms"])
