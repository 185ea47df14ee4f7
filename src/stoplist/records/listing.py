"""The records of one organization and channel, newest change first, for people who look around.

Whatever is asked for, a page goes through MAX_SCANNED records at the most, and says so where that ended it. So it costs
the same in a feed of ten thousand records and of ten million. Source: docs/interface.md sections D5, D6 and D11.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, get_args

import msgspec

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.target import GroupName, group_names
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.model import ALL_GROUPS, Reason, Status

_QUERIES = load_queries(__package__)
_BEFORE = _QUERIES["records_before"]
_COUNT_BETWEEN = _QUERIES["count_between"]
_LAST_RECORDED = _QUERIES["last_recorded"]
_SEQ_AT = _QUERIES["seq_at"]
_SEQ_BEFORE = _QUERIES["seq_before"]

ALL_GROUPS_FILTER: Final = "all"
"""As a filter: the records that stand for all groups, and no others."""
MAX_SCANNED = 4_000
DEFAULT_RECORDS = 50
_SCANNED_AT_ONCE = 2_000  # a millisecond or two, in which nobody else has their turn
_WIDER = 4  # what many records pass is found within the first stretch, and what few do is not asked for often
# Records come in the order of their commits, and are dated by the clock of the host that took them, before it waited
# for its turn. Where a date is looked for, records may be this far out of their order.
DISORDER_MS = 5 * 60 * 1000
_END_OF_NUMBERS = 2**63 - 1
_END_OF_TIME_MS = 2**62


class ListedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What holds now for an address and a group; without one, for all groups. Times are milliseconds since 1970 UTC."""

    id: str
    address: str
    group_id: str | None
    group_name: str | None
    status: Status
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    seq: int


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of records. `older` is the `before_seq` of the next page, None where there is nothing older.

    `examined` is how many records were gone through. With `is_cut` that was as many as a page may, and what was found
    until then is shown, be it nothing; `newest_ms` and `oldest_ms` then say when the first and the last of those that
    were gone through were recorded (None where it has changed meanwhile).
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


class _Wanted(NamedTuple):
    """Which records: None is any."""

    group_no: int | None
    status: str | None
    reason: str | None
    recorded_from_ms: int | None
    recorded_until_ms: int | None

    @property
    def filters(self) -> dict[str, Any]:
        """As the statement takes them."""
        first_ms = -_END_OF_TIME_MS if self.recorded_from_ms is None else self.recorded_from_ms
        end_ms = _END_OF_TIME_MS if self.recorded_until_ms is None else self.recorded_until_ms
        return {**self._asdict(), "recorded_from_ms": first_ms, "recorded_until_ms": end_ms}


class _Scan(NamedTuple):
    """What was found on the way down, where it goes on, and how many records it took."""

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
    """The newest records that are wanted, from below the change `before_seq` on, each at its latest change.

    A filter that is None takes any; `group` is a `group_id` or EVERY_GROUP; of the two times (ms UTC) the first is in.
    Page by page nothing is shown twice; what changes meanwhile is among the newest then. Missing for an organization
    that the actor may not see, Refused (`group`, `status`, `reason`) for a filter that nothing can pass.
    """
    organization = await show_organization(actor, database, org_slug)
    names = await group_names(database, [organization.organization_id])
    wanted = _Wanted(
        _group_no(group, organization, names),
        _one_of(get_args(Status), status, "status"),
        _one_of(get_args(Reason), reason, "reason"),
        recorded_from_ms,
        recorded_until_ms,
    )
    number = feed_id(organization.organization_id, channel)
    low, high = await _bounds(database, number, wanted, before_seq)
    found = await _scan(database, number, wanted, low=low, high=high, limit=limit)
    cut_at = found.older if len(found.rows) < limit else None
    return Listing(
        org_slug=organization.slug,
        org_name=organization.name,
        channel=channel.name,
        records=[_listed(row, names.get((organization.organization_id, row["group_no"]))) for row in found.rows],
        older=found.older,
        examined=found.examined,
        is_cut=cut_at is not None,
        newest_ms=None if cut_at is None else await _recorded_ms(database, number, cut_at, high),
        oldest_ms=None if cut_at is None else await _recorded_ms(database, number, cut_at, cut_at + 1),
    )


def _group_no(group: str | None, organization: Organization, names: dict[tuple[int, int], GroupName]) -> int | None:
    if group is None:
        return None
    if group == ALL_GROUPS_FILTER:
        return ALL_GROUPS
    for (_, number), name in names.items():
        if name.group_id == group:
            return number
    raise Refused(f"The organization {organization.slug} has no such group: choose one of its own.", field="group")


def _one_of(known: Sequence[str], text: str | None, field: str) -> str | None:
    if text is not None and text not in known:
        raise Refused(f"There is no such {field}: choose one of {', '.join(known)}.", field=field)
    return text


async def _bounds(database: Database, number: int, wanted: _Wanted, before_seq: int | None) -> tuple[int, int]:
    """Two numbers: every record of the dates that are wanted is at or after the first and before the second."""
    low, high = 0, _END_OF_NUMBERS if before_seq is None else min(max(0, before_seq), _END_OF_NUMBERS)
    if wanted.recorded_from_ms is not None:
        row = await database.one(_SEQ_AT, feed_id=number, at_ms=wanted.recorded_from_ms - DISORDER_MS)
        low = low if row is None else row["low"]
    if wanted.recorded_until_ms is not None and before_seq is None:
        row = await database.one(_SEQ_AT, feed_id=number, at_ms=wanted.recorded_until_ms + DISORDER_MS)
        high = high if row is None else row["high"]
    return low, high


async def _scan(database: Database, number: int, wanted: _Wanted, *, low: int, high: int, limit: int) -> _Scan:
    """Downwards a stretch at a time, until the page is full, the records are at an end, or enough were gone through."""
    rows: list[Row] = []
    before, examined = high, 0
    wide = limit + 1  # the one more tells whether there is an older one
    while examined < MAX_SCANNED:
        at_once = min(wide, _SCANNED_AT_ONCE, MAX_SCANNED - examined)
        stretch = await database.one(_SEQ_BEFORE, feed_id=number, before=before, from_seq=low, examined=at_once)
        if stretch is None or stretch["seq"] is None:
            return _Scan(rows, None, examined)
        bounds: dict[str, Any] = {"feed_id": number, "before": before, "from_seq": stretch["seq"]}
        # A record that changes meanwhile leaves the stretch for the top, and none ever enters it.
        rows += await database.all(_BEFORE, **bounds, **wanted.filters, most=limit + 1 - len(rows))
        if len(rows) > limit:
            return await _full(database, bounds, rows[:limit], examined)
        examined += stretch["examined"]
        before = stretch["seq"]
        if stretch["examined"] < at_once:
            return _Scan(rows, None, examined)
        wide *= _WIDER
        await yield_to_loop()
    return _Scan(rows, before, examined)


async def _full(database: Database, bounds: dict[str, Any], rows: list[Row], examined: int) -> _Scan:
    older = rows[-1]["seq"]
    counted = await database.one(_COUNT_BETWEEN, **{**bounds, "from_seq": older})
    return _Scan(rows, older, examined + (0 if counted is None else counted["records"]))


async def _recorded_ms(database: Database, number: int, from_seq: int, before: int) -> int | None:
    """When the last record between the two was recorded; None where it has changed meanwhile, and there is no other."""
    row = await database.one(_LAST_RECORDED, feed_id=number, from_seq=from_seq, before=before)
    return None if row is None else int(row["recorded_ms"])


def _listed(row: Row, group: GroupName | None) -> ListedRecord:
    return ListedRecord(
        id=row["id"],
        address=row["address"],
        group_id=None if group is None else group.group_id,
        group_name=None if group is None else group.name,
        status=row["status"],
        reason=row["reason"],
        source=row["source"],
        occurred_ms=row["occurred_ms"],
        recorded_ms=row["recorded_ms"],
        seq=row["seq"],
    )
