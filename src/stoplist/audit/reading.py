"""Who did what to what, from where: read newest first, by those who may. Source: docs/interface.md section D11.

An administrator reads everything, an organization's admin what concerns no organization but theirs. A page goes along
an index, and no further than SCANNED rows: what is rarer than that is found by going on from its end.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from stoplist.actor import ADMIN, Actor
from stoplist.db import Database, Row
from stoplist.db.query import Query, load_queries
from stoplist.errors import Forbidden, Missing

_QUERIES = load_queries(__package__)
_CONCERNED = _QUERIES["concerned"]
_LATEST_OF_TARGET = _QUERIES["latest_of_target"]
_NUMBERS = _QUERIES["numbers_of_organizations"]
_PLACE_OF = _QUERIES["place_of"]

SCANNED = 2_000
MOST_A_PAGE = 500
_LATEST = 2**63 - 1


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done. `at_ms` is in milliseconds since 1970 UTC.

    `organizations` are the slugs of those that it concerns; none: the deployment.
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
    """Some entries, newest first. `older` is the `before_id` of the next page, None on the last one.

    `is_cut` says that the page ends because `examined` rows were looked at: there may be more of what was asked for.
    """

    entries: list[AuditEntry]
    older: int | None
    examined: int
    is_cut: bool


class _Place(NamedTuple):
    at_ms: int
    audit_id: int


class _Way(NamedTuple):
    """Along which index a page goes, with the values that the two statements of it take.

    `is_exact`: the index holds just what is asked for, so no more rows are examined than a page has.
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


class _Wanted(NamedTuple):
    """What is asked for: by which ways it is found, from which place on (exclusive) down to which (inclusive)."""

    ways: list[_Way]
    filters: dict[str, Any]
    before: _Place
    floor: _Place


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
    """The newest entries that the actor may read, at most `limit`, or those before the entry `before_id`.

    `person` (an `actor_id`), `action` and `target` are met exactly, times from `from_ms` on and before `until_ms`.
    Forbidden for whoever administers nothing.
    """
    _must_read(actor)
    filters = {"person": person, "action": action, "target": target}
    wanted = await _wanted(actor, database, filters, from_ms, until_ms, before_id)
    return await _page(database, wanted, min(limit, MOST_A_PAGE))


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
    """All that `list_audit` shows page by page, some hundred at a time; what is recorded meanwhile is left out.

    Forbidden, before anything is read, for whoever administers nothing.
    """
    _must_read(actor)
    filters = {"person": person, "action": action, "target": target}
    return _slices(actor, database, filters, from_ms, until_ms)


async def latest_of(database: Database, target: str, *, limit: int) -> list[AuditEntry]:
    """The last things that were done to `target`, newest first: for an operation that knows who may see them."""
    return await _entries(database, await database.all(_LATEST_OF_TARGET, target=target, most=limit))


def may_read(actor: Actor, entry: AuditEntry) -> bool:
    """Whether the entry is one of those that the audit shows to the actor."""
    return actor.is_administrator or (bool(entry.organizations) and actor.administers(entry.organizations))


async def _slices(
    actor: Actor, database: Database, filters: dict[str, Any], from_ms: int | None, until_ms: int | None
) -> AsyncIterator[list[AuditEntry]]:
    wanted = await _wanted(actor, database, filters, from_ms, until_ms, None)
    while True:
        page = await _page(database, wanted, MOST_A_PAGE)
        if page.entries:
            yield page.entries
        if page.older is None:
            return
        wanted = wanted._replace(before=await _place(database, page.older, wanted.before))


def _must_read(actor: Actor) -> None:
    if not (actor.is_administrator or ADMIN in actor.roles.values()):
        raise Forbidden("Only an admin of an organization, or an administrator, may read the audit.")


async def _wanted(
    actor: Actor,
    database: Database,
    filters: dict[str, Any],
    from_ms: int | None,
    until_ms: int | None,
    before_id: int | None,
) -> _Wanted:
    before = _Place(_LATEST, _LATEST) if until_ms is None else _Place(_within(until_ms), 0)
    floor = _Place(0 if from_ms is None else _within(from_ms), 0)
    ways = await _ways(actor, database, filters) if all(map(_can_be_there, filters.values())) else []
    return _Wanted(ways, filters, await _place(database, before_id, before), floor)


async def _ways(actor: Actor, database: Database, filters: dict[str, Any]) -> list[_Way]:
    """The index that leaves the fewest rows to be examined; of several organizations the index of each."""
    if not actor.is_administrator:
        slugs = [slug for slug, role in actor.roles.items() if role == ADMIN]
        numbers = [row["organization_id"] for row in await database.all(_NUMBERS, slugs=_json(slugs))]
        mine = _json(numbers)
        if filters["target"] is not None:
            return [_Way("of_target", {"sees_all": 0, "mine": mine})]
        return [_Way("of_organization", {"organization_id": number, "mine": mine}) for number in numbers]
    is_exact = sum(value is not None for value in filters.values()) <= 1
    if filters["target"] is not None:
        return [_Way("of_target", {"sees_all": 1, "mine": "[]"}, is_exact)]
    if filters["person"] is not None:
        return [_Way("of_person", {}, is_exact)]
    return [_Way("of_action" if filters["action"] is not None else "of_all", {}, is_exact)]


async def _page(database: Database, wanted: _Wanted, limit: int) -> AuditPage:
    floors = [row for way in wanted.ways if (row := await _floor(database, wanted, way, limit))]
    floor = max([wanted.floor, *floors])
    found: dict[_Place, Row] = {}
    for way in wanted.ways:
        values = _of(way.page, wanted, way, floor=floor)
        for row in await database.all(way.page, **values, most=limit + 1):
            found[_Place(row["at_ms"], row["audit_id"])] = row
    places = sorted(found, reverse=True)
    is_cut = bool(floors) and len(places) <= limit
    older = places[limit - 1].audit_id if len(places) > limit else floor.audit_id if is_cut else None
    entries = await _entries(database, [found[place] for place in places[:limit]])
    return AuditPage(entries=entries, older=older, examined=SCANNED, is_cut=is_cut)


async def _floor(database: Database, wanted: _Wanted, way: _Way, limit: int) -> _Place | None:
    """The place of the last row that may be examined; None if there are fewer."""
    values = _of(way.floor, wanted, way, floor=wanted.floor)
    row = await database.one(way.floor, **values, scan=limit + 1 if way.is_exact else SCANNED)
    return row and _Place(row["at_ms"], row["audit_id"])


def _of(query: Query, wanted: _Wanted, way: _Way, *, floor: _Place) -> dict[str, Any]:
    """The values of a statement: each takes some of them."""
    values = {
        **wanted.filters,
        **way.values,
        "before_ms": wanted.before.at_ms,
        "before_id": wanted.before.audit_id,
        "floor_ms": floor.at_ms,
        "floor_id": floor.audit_id,
    }
    return {name: value for name, value in values.items() if name in query.parameters}


async def _place(database: Database, audit_id: int | None, before: _Place) -> _Place:
    """The place of that entry if it is before `before`, which it is if `audit_id` is None; Missing if there is none."""
    if audit_id is None:
        return before
    row = await database.one(_PLACE_OF, audit_id=audit_id) if 0 < audit_id <= _LATEST else None
    if row is None:
        raise Missing("There is no such page of the audit: begin with the newest one.")
    return min(before, _Place(row["at_ms"], audit_id))


async def _entries(database: Database, rows: list[Row]) -> list[AuditEntry]:
    organizations: dict[int, list[str]] = {}
    for concerned in await database.all(_CONCERNED, audit_ids=_json([row["audit_id"] for row in rows])):
        organizations.setdefault(concerned["audit_id"], []).append(concerned["slug"])
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


def _json(values: list[Any]) -> str:
    return msgspec.json.encode(values).decode()


def _within(time_ms: int) -> int:
    return max(0, min(time_ms, _LATEST))


def _can_be_there(text: str | None) -> bool:
    """Whether a database could hold it: text without NUL and without halves of characters."""
    return text is None or not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in text)
