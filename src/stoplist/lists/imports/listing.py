"""Finds and lists imports.

Source: docs/interface.md section D12.
"""

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import load_queries
from stoplist.errors import Missing
from stoplist.lists.imports.model import Import, ImportCounts, ImportOptions
from stoplist.organizations.store import find_organization, require_visible
from stoplist.organizations.target import ALL_GROUPS, Target, group_label, group_names, lost_group
from stoplist.unsubscribes.channel import Channel, feed_id

_QUERIES = load_queries(__package__)
_FIND = _QUERIES["find_import"]
_IMPORTS = _QUERIES["imports_of"]
_IMPORTS_INTO = _QUERIES["imports_into"]
_NAMES = load_queries("stoplist.records")["names_of_target"]

_ALL_OF_THEM = 2**62
_HOW_TO_FIND = "`stoplist import list` lists the imports."


async def find_import(actor: Actor, database: Database, import_id: str) -> Import:
    """Return the import of that id; Missing if there is none that the actor sees.

    StoreUnavailable if it is of a group that a restore has lost.
    """
    row = await database.one(_FIND, import_id=import_id) if ids.could_be_id(import_id, ids.IMPORT_ID) else None
    found = None
    if row is not None:
        names = await database.one(_NAMES, organization_id=row["organization_id"], group_no=row["group_no"])
        found = None if names is None else _import(row, names["slug"], names["group_id"], names["name"])
    if found is None or not actor.sees(found.org_slug):
        raise Missing("There is no import of that id. An id is `imp_` and 22 letters and digits.", command=_HOW_TO_FIND)
    if found.group_no != ALL_GROUPS and found.group_id is None:
        raise lost_group()
    return found


async def list_imports(
    actor: Actor, database: Database, *, org_slug: str | None = None, limit: int = _ALL_OF_THEM
) -> list[Import]:
    """Return the imports of an organization, or of all that the actor sees, the newest first."""
    organization_id = None
    if org_slug is not None:
        require_visible(actor, org_slug)
        organization_id = (await find_organization(database, org_slug)).organization_id
    rows = await database.all(_IMPORTS, organization_id=organization_id, most=limit)
    groups = await group_names(database, (row["organization_id"] for row in rows))
    slugs = {row["organization_id"]: "" for row in rows}
    for number in slugs:
        names = await database.one(_NAMES, organization_id=number, group_no=ALL_GROUPS)
        slugs[number] = "" if names is None else names["slug"]
    found = []
    for row in rows:
        slug = slugs[row["organization_id"]]
        if actor.sees(slug):
            found.append(_import(row, slug, *group_label(groups, row["organization_id"], row["group_no"])))
    return found


async def imports_into(actor: Actor, database: Database, channel: Channel, target: Target) -> list[Import]:
    """Return the imports into this organization, channel and group, or those into all groups; the newest first."""
    require_visible(actor, target.org_slug)
    group_no = target.group_no
    rows = await database.all(_IMPORTS_INTO, feed_id=feed_id(target.organization_id, channel), group_no=group_no)
    group = (await group_names(database, [target.organization_id])).get((target.organization_id, group_no))
    return [_import(row, target.org_slug, group and group.group_id, group and group.name) for row in rows]


def _import(row: Row, org_slug: str, group_id: str | None, group_name: str | None) -> Import:
    return Import(
        import_id=row["import_id"],
        state=row["state"],
        org_slug=org_slug,
        channel=row["channel"],
        group_id=group_id,
        group_name=group_name,
        file_name=row["file_name"],
        options=msgspec.json.decode(row["options"], type=ImportOptions),
        actor_kind=row["actor_kind"],
        actor_id=row["actor_id"],
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        row_count=row["row_count"],
        sha256=row["sha256"],
        rejects_bytes=row["rejects_bytes"],
        counts=msgspec.json.decode(row["counts"], type=ImportCounts),
        lease_id=row["lease_id"],
        lease_until_ms=row["lease_until_ms"],
        organization_id=row["organization_id"],
        feed_id=row["feed_id"],
        group_no=row["group_no"],
    )
