"""Reads the audit, newest entries first. Source: docs/interface.md section D11.

An administrator reads all entries, an organization's admin those that concern no other organization. A page follows an
index and examines at most MAX_SCANNED rows; rarer entries are found by going on from the end of the page.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from stoplist.actor import ADMIN, Actor
from stoplist.db import Database, Row
from stoplist.db.query import Query, json_text, load_queries
from stoplist.errors import Forbidden, Missing

_QUERIES = load_queries(__package__)
_CONCERNED = _QUERIES["concerned"]
_LATEST_OF_TARGET = _QUERIES["latest_of_target"]
_NUMBERS = _QUERIES["numbers_of_organizations"]
_TIME_OF_ENTRY = _QUERIES["place_of"]

MAX_SCANNED = 2_000
MAX_PAGE_SIZE = 500
_LATEST = 2**63 - 1


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded action. `at_ms` is in milliseconds since 1970 UTC.

    `organizations` are the slugs of the organizations that the action concerns; none means the deployment.
    """

    audit_id: int
    at_ms: int
    actor_kind: str
    actor_id: str
    source_ip: str | None
    request_id: str | None
    action: str
    target: str
    detail: dict[str, Any]
    organizations: list[str]


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of entries, newest first. `older` is the `before_id` of the next page, None on the last page.

    `is_cut` means that the page ends because `examined` rows were examined; there may be more matching entries.
    """

    entries: list[AuditEntry]
    older: int | None
    examined: int
    is_cut: bool


class _Position(NamedTuple):
    at_ms: int
    audit_id: int


class _IndexScan(NamedTuple):
    """The index that a page follows, with the parameters of its two statements.

    `is_exact` means that every row of the index matches the filters, so that no more rows are examined than a page has.
    """

    name: str
    values: dict[str, Any]
    is_exact: bool = False

    @property
    def floor(self) -> Query:
        return _QUERIES[f"floor_{self.name}"]

    @property
    def page(self) -> Query:
        return _QUERIES[f"page_{self.name}"]


class _Search(NamedTuple):
    """A request: its index scans and filters, from `before` (exclusive) down to `floor` (inclusive)."""

    index_scans: list[_IndexScan]
    filters: dict[str, Any]
    before: _Position
    floor: _Position


async def list_audit(
    actor: Actor,
    database: Database,
    *,
    person: str | None = None,
    action: str | None = None,
    target: str | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
    before_id: int | None = None,
    limit: int = 50,
) -> AuditPage:
    """Return the newest entries that the actor may read, at most `limit`, or those before the entry `before_id`.

    `person` (an `actor_id`), `action` and `target` match exactly; times are from `from_ms` on and before `until_ms`.
    Forbidden for an actor who is neither an administrator nor an admin of any organization.
    """
    _require_may_read(actor)
    filters = {"person": person, "action": action, "target": target}
    search = await _search(actor, database, filters, from_ms, until_ms, before_id)
    return await _page(database, search, min(limit, MAX_PAGE_SIZE))


def export_audit(
    actor: Actor,
    database: Database,
    *,
    person: str | None = None,
    action: str | None = None,
    target: str | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
) -> AsyncIterator[list[AuditEntry]]:
    """Yield all entries that `list_audit` pages through, a few hundred at a time, without those recorded meanwhile.

    Forbidden, before anything is read, for an actor who is neither an administrator nor an admin of any organization.
    """
    _require_may_read(actor)
    filters = {"person": person, "action": action, "target": target}
    return _pages(actor, database, filters, from_ms, until_ms)


async def latest_of(database: Database, target: str, *, limit: int) -> list[AuditEntry]:
    """Return the latest entries of `target`, newest first. The caller checks who may see them."""
    return await _entries(database, await database.all(_LATEST_OF_TARGET, target=target, most=limit))


def may_read(actor: Actor, entry: AuditEntry) -> bool:
    """Return whether the audit shows this entry to the actor."""
    return actor.is_administrator or (bool(entry.organizations) and actor.administers(entry.organizations))


async def _pages(
    actor: Actor, database: Database, filters: dict[str, Any], from_ms: int | None, until_ms: int | None
) -> AsyncIterator[list[AuditEntry]]:
    search = await _search(actor, database, filters, from_ms, until_ms, None)
    while True:
        page = await _page(database, search, MAX_PAGE_SIZE)
        if page.entries:
            yield page.entries
        if page.older is None:
            return
        search = search._replace(before=await _upper_bound(database, page.older, search.before))


def _require_may_read(actor: Actor) -> None:
    if not (actor.is_administrator or ADMIN in actor.roles.values()):
        raise Forbidden("Only an admin of an organization, or an administrator, may read the audit.")


async def _search(
    actor: Actor,
    database: Database,
    filters: dict[str, Any],
    from_ms: int | None,
    until_ms: int | None,
    before_id: int | None,
) -> _Search:
    before = _Position(_LATEST, _LATEST) if until_ms is None else _Position(_clamped(until_ms), 0)
    floor = _Position(0 if from_ms is None else _clamped(from_ms), 0)
    index_scans = await _index_scans(actor, database, filters) if all(map(_is_storable, filters.values())) else []
    return _Search(index_scans, filters, await _upper_bound(database, before_id, before), floor)


async def _index_scans(actor: Actor, database: Database, filters: dict[str, Any]) -> list[_IndexScan]:
    """Return the index scan that examines the fewest rows; for several organizations, the scan of each."""
    if not actor.is_administrator:
        slugs = [slug for slug, role in actor.roles.items() if role == ADMIN]
        numbers = [row["organization_id"] for row in await database.all(_NUMBERS, slugs=json_text(slugs))]
        mine = json_text(numbers)
        if filters["target"] is not None:
            return [_IndexScan("of_target", {"sees_all": 0, "mine": mine})]
        return [_IndexScan("of_organization", {"organization_id": number, "mine": mine}) for number in numbers]
    is_exact = sum(value is not None for value in filters.values()) <= 1
    if filters["target"] is not None:
        return [_IndexScan("of_target", {"sees_all": 1, "mine": "[]"}, is_exact)]
    if filters["person"] is not None:
        return [_IndexScan("of_person", {}, is_exact)]
    return [_IndexScan("of_action" if filters["action"] is not None else "of_all", {}, is_exact)]


async def _page(database: Database, search: _Search, limit: int) -> AuditPage:
    floors = [row for index_scan in search.index_scans if (row := await _floor(database, search, index_scan, limit))]
    floor = max([search.floor, *floors])
    rows_by_position: dict[_Position, Row] = {}
    for index_scan in search.index_scans:
        values = _parameters(index_scan.page, search, index_scan, floor=floor)
        for row in await database.all(index_scan.page, **values, most=limit + 1):
            rows_by_position[_Position(row["at_ms"], row["audit_id"])] = row
    positions = sorted(rows_by_position, reverse=True)
    is_cut = bool(floors) and len(positions) <= limit
    older = positions[limit - 1].audit_id if len(positions) > limit else floor.audit_id if is_cut else None
    entries = await _entries(database, [rows_by_position[position] for position in positions[:limit]])
    return AuditPage(entries=entries, older=older, examined=MAX_SCANNED, is_cut=is_cut)


async def _floor(database: Database, search: _Search, index_scan: _IndexScan, limit: int) -> _Position | None:
    """Return the position of the last row that may be examined; None if there are fewer rows."""
    values = _parameters(index_scan.floor, search, index_scan, floor=search.floor)
    row = await database.one(index_scan.floor, **values, scan=limit + 1 if index_scan.is_exact else MAX_SCANNED)
    return row and _Position(row["at_ms"], row["audit_id"])


def _parameters(query: Query, search: _Search, index_scan: _IndexScan, *, floor: _Position) -> dict[str, Any]:
    """Return the parameters that the statement takes."""
    values = {
        **search.filters,
        **index_scan.values,
        "before_ms": search.before.at_ms,
        "before_id": search.before.audit_id,
        "floor_ms": floor.at_ms,
        "floor_id": floor.audit_id,
    }
    return {name: value for name, value in values.items() if name in query.parameters}


async def _upper_bound(database: Database, audit_id: int | None, before: _Position) -> _Position:
    """Return the earlier of `before` and the position of this entry; `before` if `audit_id` is None.

    Missing if there is no such entry.
    """
    if audit_id is None:
        return before
    row = await database.one(_TIME_OF_ENTRY, audit_id=audit_id) if 0 < audit_id <= _LATEST else None
    if row is None:
        raise Missing("There is no such page of the audit. Begin with the newest page.")
    return min(before, _Position(row["at_ms"], audit_id))


async def _entries(database: Database, rows: list[Row]) -> list[AuditEntry]:
    organizations: dict[int, list[str]] = {}
    for concern in await database.all(_CONCERNED, audit_ids=json_text([row["audit_id"] for row in rows])):
        organizations.setdefault(concern["audit_id"], []).append(concern["slug"])
    return [
        AuditEntry(
            audit_id=row["audit_id"],
            at_ms=row["at_ms"],
            actor_kind=row["actor_kind"],
            actor_id=row["actor_id"],
            source_ip=row["source_ip"],
            request_id=row["request_id"],
            action=row["action"],
            target=row["target"],
            detail=msgspec.json.decode(row["detail"]),
            organizations=organizations.get(row["audit_id"], []),
        )
        for row in rows
    ]


def _clamped(time_ms: int) -> int:
    return max(0, min(time_ms, _LATEST))


def _is_storable(text: str | None) -> bool:
    """Return whether a database can store the text: without NUL and without surrogates."""
    return text is None or not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)
