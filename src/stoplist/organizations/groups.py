"""Create, list and retire groups, and choose an organization's default. Source: docs/interface.md section D5."""

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.organizations.model import Group, Organization, checked_name
from stoplist.organizations.store import find_organization, locked_open

_QUERIES = load_queries(__package__)
_BY_ID = _QUERIES["group_by_id"]
_CREATE = _QUERIES["create_group"]
_LIST = _QUERIES["groups_of"]
_RETIRE = _QUERIES["retire_group"]
_SET_DEFAULT = _QUERIES["set_default_group"]
_UNSET_DEFAULT = _QUERIES["unset_default_group"]


async def create_group(
    actor: Actor, database: Database, clock: Clock, *, org_slug: str, name: str, is_default: bool = False
) -> Group:
    """The group exists in the organization, as its default if asked. Refused if the name is taken there."""
    actor.must_be_administrator()
    name = checked_name(name, "The name of a group")
    now_ms = clock.now_ms()

    async def create(transaction: Transaction) -> Group:
        organization = await locked_open(transaction, org_slug)
        group_id = await add_group(transaction, actor, organization, name, is_default=is_default, now_ms=now_ms)
        return await _group(transaction, group_id)

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
    """Within a transaction that holds the organization: the group exists; returns its `group_id`."""
    group_id = ids.new_id(ids.GROUP_ID)
    created = await transaction.one(
        _CREATE,
        group_id=group_id,
        organization_id=organization.organization_id,
        name=name,
        created_ms=now_ms,
    )
    if created is None:
        raise Refused(
            f"The organization {organization.slug} has a group named {name!r} already, perhaps a retired one: "
            f"choose another name, or see `stoplist group list --org {organization.slug}`."
        )
    if is_default:
        await transaction.run(_SET_DEFAULT, organization_id=organization.organization_id, group_id=group_id)
    await trail.record(
        transaction,
        actor,
        "group.create",
        group_id,
        at_ms=now_ms,
        org_slug=organization.slug,
        name=name,
        is_default=is_default,
    )
    return group_id


async def list_groups(actor: Actor, database: Database, *, org_slug: str) -> list[Group]:
    """The organization's groups, retired ones included, in the order in which they were made."""
    actor.must_be_administrator()
    await find_organization(database, org_slug)
    return [_from_row(row) for row in await database.all(_LIST, slug=org_slug)]


async def retire_group(actor: Actor, database: Database, clock: Clock, *, group_id: str) -> Group:
    """The group is retired for good; if it was the default, its organization is left without one."""
    actor.must_be_administrator()
    now_ms = clock.now_ms()

    async def retire(transaction: Transaction) -> Group:
        org_slug = (await _group(transaction, group_id)).org_slug
        await locked_open(transaction, org_slug)
        group = await _group(transaction, group_id)
        if group.retired_ms is not None:
            raise Refused(f"The group {group_id} is retired already.")
        await transaction.run(_RETIRE, group_id=group_id, retired_ms=now_ms)
        await transaction.run(_UNSET_DEFAULT, group_id=group_id)
        await trail.record(
            transaction,
            actor,
            "group.retire",
            group_id,
            at_ms=now_ms,
            org_slug=org_slug,
            was_default=group.is_default,
        )
        return await _group(transaction, group_id)

    return await database.write(retire)


async def set_default_group(actor: Actor, database: Database, clock: Clock, *, org_slug: str, group_id: str) -> Group:
    """Submissions to the organization that name no group go to this one from now on."""
    actor.must_be_administrator()
    now_ms = clock.now_ms()

    async def set_default(transaction: Transaction) -> Group:
        organization = await locked_open(transaction, org_slug)
        group = await _group(transaction, group_id)
        if group.org_slug != org_slug:
            raise Refused(f"The group {group_id} belongs to another organization than {org_slug}.")
        if group.retired_ms is not None:
            raise Refused(f"The group {group_id} is retired: choose one that is in use.")
        if not group.is_default:
            await transaction.run(_SET_DEFAULT, organization_id=organization.organization_id, group_id=group_id)
            await trail.record(
                transaction,
                actor,
                "organization.set_default_group",
                org_slug,
                at_ms=now_ms,
                group_id=group_id,
            )
        return await _group(transaction, group_id)

    return await database.write(set_default)


async def _group(transaction: Transaction, group_id: str) -> Group:
    row = await transaction.one(_BY_ID, group_id=group_id)
    if row is None:
        raise Refused("There is no group of that id: `stoplist group list --org SLUG` shows those that exist.")
    return _from_row(row)


def _from_row(row: Row) -> Group:
    return Group(
        group_id=row["group_id"],
        org_slug=row["org_slug"],
        name=row["name"],
        is_default=bool(row["is_default"]),
        created_ms=row["created_ms"],
        retired_ms=row["retired_ms"],
    )
