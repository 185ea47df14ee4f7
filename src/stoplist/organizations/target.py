"""Resolves the organization and group of a client's or person's request. Source: docs/interface.md section D5."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stoplist import ids
from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused, StoreUnavailable, UnauthorizedOrganization
from stoplist.organizations.store import find_organization, require_admin_of

_QUERIES = load_queries(__package__)
_BY_GROUP = _QUERIES["target_by_group"]
_BY_SLUG = _QUERIES["target_by_slug"]
_DEFAULT = _QUERIES["target_default"]
# The number that stands for all groups of an organization; a group's own number is greater.
ALL_GROUPS = 0
GROUP_NUMBERS = _QUERIES["group_numbers"]
_GROUPS_OF = _QUERIES["groups_of_organizations"]
_OF_PEOPLE = _QUERIES["target_of_people"]

_NO_ORGANIZATION = "This key is not for that organization, or there is none: use the slug of one of its organizations."
_NO_GROUP = "This key is not for that group, or there is none: use the id of a group of one of its organizations."


class TargetGroup(NamedTuple):
    """A group, by its number in the organization and its id."""

    number: int
    group_id: str


class Target(NamedTuple):
    """An open organization that the actor may act for, the requested group, and the default group."""

    organization_id: int
    org_slug: str
    group: TargetGroup | None
    default_group: TargetGroup | None

    @property
    def group_no(self) -> int:
        """Return the number of the requested group, ALL_GROUPS without one."""
        return ALL_GROUPS if self.group is None else self.group.number


class GroupName(NamedTuple):
    """The id and the name of a group."""

    group_id: str
    name: str


def default_target(
    organization_id: int | None, org_slug: str | None, closed_ms: int | None, group_no: int | None, group_id: str | None
) -> Target | None:
    """Return the target of requests that name none, from the columns of a client's default organization and its group.

    Return None if there is no such organization, or it is closed.
    """
    if organization_id is None or org_slug is None or closed_ms is not None:
        return None
    group = None if group_no is None or group_id is None else TargetGroup(group_no, group_id)
    return Target(organization_id, org_slug, group=None, default_group=group)


async def find_target(
    database: Database, client_id: str, *, org_slug: str | None, group_id: str | None, default: Target | None = None
) -> Target:
    """Return the organization and group that a client's request means; with neither, the client's default organization.

    `default` is that organization as the bearer check of this very request found it; None looks it up.
    Raises UnauthorizedOrganization with the wrong value as it was sent, in the same way for organizations and groups of
    others, closed and retired ones, and ones that do not exist.
    """
    if default is not None and org_slug is None and group_id is None:
        return default
    row = await _find_row(database, client_id, org_slug, group_id)
    if row is None or row["closed_ms"] is not None:
        if org_slug is None and group_id is not None:
            raise UnauthorizedOrganization(_NO_GROUP, group_id=group_id)
        default_slug = row["slug"] if row is not None else None
        raise UnauthorizedOrganization(_NO_ORGANIZATION, org_slug=default_slug if org_slug is None else org_slug)
    if group_id is not None and not _holds_group(row):
        raise UnauthorizedOrganization(_NO_GROUP, group_id=group_id)
    return _target(row, group_id)


async def find_target_of_person(actor: Actor, database: Database, *, org_slug: str, group_id: str | None) -> Target:
    """Return the organization and group that a person or command means to change records of.

    Missing for an organization that the actor may not see, Forbidden for one that the actor may only see, Refused for a
    closed organization, a retired group and a group of another organization.
    """
    require_admin_of(actor, org_slug)
    if (await find_organization(database, org_slug)).is_closed:
        raise Refused(f"The organization {org_slug} is closed, so its records cannot be changed.", field="org_slug")
    # A malformed id is not looked up, since PostgreSQL does not accept every text.
    is_id = group_id is None or ids.could_be_id(group_id, ids.GROUP_ID)
    row = await database.one(_OF_PEOPLE, slug=org_slug, group_id=group_id) if is_id else None
    if row is None or (group_id is not None and not _holds_group(row)):
        raise Refused(
            f"The organization {org_slug} has no such group in use. Choose one of its groups that is not retired.",
            field="group_id",
        )
    return _target(row, group_id)


async def group_ids(database: Database, organization_id: int) -> dict[int, str]:
    """Return the `group_id` of each group number, including retired groups."""
    return {
        row["group_no"]: row["group_id"] for row in await database.all(GROUP_NUMBERS, organization_id=organization_id)
    }


async def group_names(database: Database, organization_ids: Iterable[int]) -> dict[tuple[int, int], GroupName]:
    """Return the groups of these organizations by `organization_id` and number, including retired groups."""
    rows = await database.all(_GROUPS_OF, organizations=json_text(sorted(set(organization_ids))))
    return {(row["organization_id"], row["group_no"]): GroupName(row["group_id"], row["name"]) for row in rows}


def group_of(names: Mapping[tuple[int, int], GroupName], organization_id: int, number: int) -> GroupName | None:
    """Return the group of that number, None for all groups; StoreUnavailable if a restore has lost it.

    `names` are those of `group_names`, read after the number.
    """
    if number == ALL_GROUPS:
        return None
    group = names.get((organization_id, number))
    if group is None:
        raise lost_group()
    return group


def group_label(
    names: Mapping[tuple[int, int], GroupName], organization_id: int, number: int
) -> tuple[str | None, str | None]:
    """Return the id and the name of the group of that number, for a list that must not fail: see `group_of`.

    Both are None for all groups. A group that a restore has lost has no id, and a name that says so.
    """
    if number == ALL_GROUPS:
        return None, None
    return names.get((organization_id, number), (None, name_of_lost_group(number)))


def lost_group() -> StoreUnavailable:
    """Return the refusal of records whose group there is not, because a restore took the accounts alone back."""
    return StoreUnavailable(
        "Some records of this organization belong to a group that is not known, because the databases were restored "
        "to different times. An operator must run `stoplist after-restore`.",
        retry_after_s=60,
    )


def name_of_lost_group(number: int) -> str:
    """Return the name of a group that a restore has lost, by its number in the organization."""
    return f"Group {number}, lost in a restore"


async def _find_row(database: Database, client_id: str, org_slug: str | None, group_id: str | None) -> Row | None:
    if org_slug is not None:
        return await database.one(_BY_SLUG, client_id=client_id, slug=org_slug, group_id=group_id)
    if group_id is not None:
        return await database.one(_BY_GROUP, client_id=client_id, group_id=group_id)
    return await database.one(_DEFAULT, client_id=client_id)


def _holds_group(row: Row) -> bool:
    """Return whether the named group belongs to the organization and is in use."""
    return row["group_organization_id"] == row["organization_id"] and row["retired_ms"] is None


def _target(row: Row, group_id: str | None) -> Target:
    default = row["default_group_id"]
    return Target(
        organization_id=row["organization_id"],
        org_slug=row["slug"],
        group=None if group_id is None else TargetGroup(row["group_no"], row["group_id"]),
        default_group=None if default is None else TargetGroup(row["default_group_no"], default),
    )
