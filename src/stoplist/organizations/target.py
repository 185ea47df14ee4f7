"""Which organization and group a client's request means. Source: docs/interface.md section D5."""

from typing import NamedTuple

from stoplist.db import Database, Row
from stoplist.db.query import load_queries
from stoplist.errors import UnauthorizedOrganization

_QUERIES = load_queries(__package__)
_BY_GROUP = _QUERIES["target_by_group"]
_BY_SLUG = _QUERIES["target_by_slug"]
_DEFAULT = _QUERIES["target_default"]
_GROUP_NUMBERS = _QUERIES["group_numbers"]

_NO_ORGANIZATION = "This key is not for that organization, or there is none: use the slug of one of its organizations."
_NO_GROUP = "This key is not for that group, or there is none: use the id of a group of one of its organizations."


class Group(NamedTuple):
    """A group within its organization."""

    number: int
    group_id: str


class Target(NamedTuple):
    """An open organization that the client may act for, the group asked for, and the organization's default group."""

    organization_id: int
    org_slug: str
    group: Group | None
    default_group: Group | None


async def find_target(database: Database, client_id: str, *, org_slug: str | None, group_id: str | None) -> Target:
    """What the two names mean to this client; with neither its default organization.

    Raises UnauthorizedOrganization, with what is wrong as it was sent: for another's, a closed or retired one and one
    that does not exist alike.
    """
    row = await _row(database, client_id, org_slug, group_id)
    if row is None or row["closed_ms"] is not None:
        if org_slug is None and group_id is not None:
            raise UnauthorizedOrganization(_NO_GROUP, group_id=group_id)
        default_slug = row["slug"] if row is not None else None
        raise UnauthorizedOrganization(_NO_ORGANIZATION, org_slug=default_slug if org_slug is None else org_slug)
    group = None
    if group_id is not None:
        if row["group_organization_id"] != row["organization_id"] or row["retired_ms"] is not None:
            raise UnauthorizedOrganization(_NO_GROUP, group_id=group_id)
        group = Group(row["group_no"], row["group_id"])
    default = row["default_group_id"]
    return Target(
        organization_id=row["organization_id"],
        org_slug=row["slug"],
        group=group,
        default_group=None if default is None else Group(row["default_group_no"], default),
    )


async def group_ids(database: Database, organization_id: int) -> dict[int, str]:
    """The `group_id` of each number, of retired groups too."""
    return {
        row["group_no"]: row["group_id"] for row in await database.all(_GROUP_NUMBERS, organization_id=organization_id)
    }


async def _row(database: Database, client_id: str, org_slug: str | None, group_id: str | None) -> Row | None:
    if org_slug is not None:
        return await database.one(_BY_SLUG, client_id=client_id, slug=org_slug, group_id=group_id)
    if group_id is not None:
        return await database.one(_BY_GROUP, client_id=client_id, group_id=group_id)
    return await database.one(_DEFAULT, client_id=client_id)
