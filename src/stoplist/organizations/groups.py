"""Create, list, rename and retire groups, and choose an organization's default.

Source: docs/interface.md section D5; who may do what: section D11.
"""

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing, Refused
from stoplist.organizations.model import Group, Organization, checked_name
from stoplist.organizations.store import (
    find_organization,
    lock_open_organization,
    lock_organization,
    require_admin_of,
    require_visible,
)
from stoplist.organizations.target import name_of_lost_group

_QUERIES = load_queries(__package__)
_BY_ID = _QUERIES["group_by_id"]
_CREATE = _QUERIES["create_group"]
_CREATE_LOST = _QUERIES["create_lost_group"]
_LIST = _QUERIES["groups_of"]
_RENAME = _QUERIES["rename_group"]
_RETIRE = _QUERIES["retire_group"]
_SET_DEFAULT = _QUERIES["set_default_group"]
_UNSET_DEFAULT = _QUERIES["unset_default_group"]


async def create_group(
    actor: Actor, database: Database, clock: Clock, *, org_slug: str, name: str, is_default: bool = False
) -> Group:
    """Create a group in the organization, as its default if `is_default`. Refused if the name is taken there."""
    require_admin_of(actor, org_slug)
    name = checked_name(name, "The name of a group")
    now_ms = clock.now_ms()

    async def create(transaction: Transaction) -> Group:
        organization = await lock_open_organization(transaction, org_slug)
        group_id = await add_group(transaction, actor, organization, name, is_default=is_default, now_ms=now_ms)
        return await _group(transaction, actor, group_id)

    return await database.write(create)


async def add_group(
    transaction: Transaction,
    actor: Actor,
    organization: Organization,
    name: str,
    *,
    is_default: bool,
    now_ms: int,
) -> str:
    """Create a group, within a transaction that holds the organization's lock, and return its `group_id`."""
    group_id = ids.new_id(ids.GROUP_ID)
    created = await transaction.one(
        _CREATE,
        group_id=group_id,
        organization_id=organization.organization_id,
        name=name,
        created_ms=now_ms,
    )
    if created is None:
        raise _name_is_taken(organization.slug, name)
    if is_default:
        await transaction.run(_SET_DEFAULT, organization_id=organization.organization_id, group_id=group_id)
    await trail.record(
        transaction,
        actor,
        "group.create",
        group_id,
        at_ms=now_ms,
        organizations=(organization.slug,),
        org_slug=organization.slug,
        name=name,
        is_default=is_default,
    )
    return group_id


async def recreate_group(
    transaction: Transaction, actor: Actor, organization: Organization, number: int, *, now_ms: int
) -> bool:
    """Create the group of that number, which a restore has lost; return whether there was none.

    Within a transaction that holds the organization's lock. The id is new, and the name says that the group was lost.
    """
    group_id, name = ids.new_id(ids.GROUP_ID), name_of_lost_group(number)
    for free_name in (name, f"{name} ({group_id})"):
        created = await transaction.one(
            _CREATE_LOST,
            group_id=group_id,
            organization_id=organization.organization_id,
            group_no=number,
            name=free_name,
            created_ms=now_ms,
        )
        if created is not None:
            await trail.record(
                transaction,
                actor,
                "group.recreate",
                group_id,
                at_ms=now_ms,
                organizations=(organization.slug,),
                org_slug=organization.slug,
                name=free_name,
            )
            return True
    return False


async def list_groups(actor: Actor, database: Database, *, org_slug: str) -> list[Group]:
    """Return the organization's groups in the order of their creation, retired ones included."""
    require_visible(actor, org_slug)
    await find_organization(database, org_slug)
    return [_from_row(row) for row in await database.all(_LIST, slug=org_slug)]


async def rename_group(actor: Actor, database: Database, clock: Clock, *, group_id: str, name: str) -> Group:
    """Rename a group; its opt-outs stay. Refused if the organization has another group of that name."""
    now_ms = clock.now_ms()

    async def rename(transaction: Transaction) -> Group:
        group = await _lock_active_group(transaction, actor, group_id)
        new_name = checked_name(name, "The name of a group")
        if new_name == group.name:
            return group
        if await transaction.one(_RENAME, group_id=group_id, name=new_name) is None:
            raise _name_is_taken(group.org_slug, new_name)
        await trail.record(
            transaction,
            actor,
            "group.rename",
            group_id,
            at_ms=now_ms,
            organizations=(group.org_slug,),
            org_slug=group.org_slug,
            name=new_name,
            was=group.name,
        )
        return await _group(transaction, actor, group_id)

    return await database.write(rename)


async def retire_group(actor: Actor, database: Database, clock: Clock, *, group_id: str) -> Group:
    """Retire the group permanently. If it was the default group, its organization has none afterwards."""
    now_ms = clock.now_ms()

    async def retire(transaction: Transaction) -> Group:
        group = await _lock_active_group(transaction, actor, group_id)
        await transaction.run(_RETIRE, group_id=group_id, retired_ms=now_ms)
        await transaction.run(_UNSET_DEFAULT, group_id=group_id)
        await trail.record(
            transaction,
            actor,
            "group.retire",
            group_id,
            at_ms=now_ms,
            organizations=(group.org_slug,),
            org_slug=group.org_slug,
            was_default=group.is_default,
        )
        return await _group(transaction, actor, group_id)

    return await database.write(retire)


async def set_default_group(actor: Actor, database: Database, clock: Clock, *, org_slug: str, group_id: str) -> Group:
    """Make the group the one for submissions to the organization that name no group."""
    require_admin_of(actor, org_slug)
    now_ms = clock.now_ms()

    async def set_default(transaction: Transaction) -> Group:
        organization = await lock_open_organization(transaction, org_slug)
        group = await _group(transaction, actor, group_id)
        if group.org_slug != org_slug:
            raise Refused(f"The group {group_id} belongs to another organization than {org_slug}.", field="group_id")
        if group.retired_ms is not None:
            raise Refused(f"The group {group_id} is retired. Choose one that is in use.", field="group_id")
        if not group.is_default:
            await transaction.run(_SET_DEFAULT, organization_id=organization.organization_id, group_id=group_id)
            await trail.record(
                transaction,
                actor,
                "organization.set_default_group",
                org_slug,
                at_ms=now_ms,
                organizations=(org_slug,),
                group_id=group_id,
            )
        return await _group(transaction, actor, group_id)

    return await database.write(set_default)


async def unset_default_group(actor: Actor, database: Database, clock: Clock, *, org_slug: str) -> Organization:
    """Unset the default group. Submissions that name no group are refused until another default is chosen."""
    require_admin_of(actor, org_slug)
    now_ms = clock.now_ms()

    async def unset_default(transaction: Transaction) -> Organization:
        organization = await lock_open_organization(transaction, org_slug)
        if organization.default_group_id is not None:
            await transaction.run(_UNSET_DEFAULT, group_id=organization.default_group_id)
            await trail.record(
                transaction,
                actor,
                "organization.unset_default_group",
                org_slug,
                at_ms=now_ms,
                organizations=(org_slug,),
                group_id=organization.default_group_id,
            )
        return await lock_organization(transaction, org_slug)

    return await database.write(unset_default)


async def _lock_active_group(transaction: Transaction, actor: Actor, group_id: str) -> Group:
    """Lock the group's organization and return the group; Refused if either is closed or retired."""
    org_slug = (await _group(transaction, actor, group_id)).org_slug
    require_admin_of(actor, org_slug)
    await lock_open_organization(transaction, org_slug)
    group = await _group(transaction, actor, group_id)
    if group.retired_ms is not None:
        raise Refused(f"The group {group_id} is retired already and cannot be changed.")
    return group


async def _group(transaction: Transaction, actor: Actor, group_id: str) -> Group:
    row = await transaction.one(_BY_ID, group_id=group_id) if ids.could_be_id(group_id, ids.GROUP_ID) else None
    if row is None or not actor.sees(row["org_slug"]):
        raise Missing(
            "There is no group with that id.",
            field="group_id",
            command="`stoplist group list --org SLUG` lists the groups.",
        )
    return _from_row(row)


def _name_is_taken(org_slug: str, name: str) -> Refused:
    return Refused(
        f"The organization {org_slug} already has a group named {name!r}, perhaps a retired one. Choose another name.",
        field="name",
        command=f"`stoplist group list --org {org_slug}` lists all groups.",
    )


def _from_row(row: Row) -> Group:
    return Group(
        group_id=row["group_id"],
        org_slug=row["org_slug"],
        name=row["name"],
        is_default=bool(row["is_default"]),
        created_ms=row["created_ms"],
        retired_ms=row["retired_ms"],
    )
