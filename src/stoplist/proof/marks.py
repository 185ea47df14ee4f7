"""Marks keys that must follow a feed, or have stopped.

Source: docs/interface.md section D14, Propagation.
"""

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing
from stoplist.oauth.credentials import list_credentials
from stoplist.oauth.model import Credential
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.store import require_admin_of
from stoplist.organizations.target import ALL_GROUPS, group_names
from stoplist.proof.follower import Mark
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.model import OptOutStores

_MARK = load_queries(__package__)["mark_follower"]


async def set_mark(
    actor: Actor,
    stores: OptOutStores,
    *,
    org_slug: str,
    channel: Channel,
    client_id: str,
    group_id: str | None = None,
    mark: Mark | None,
) -> None:
    """Mark that a key must follow a feed, or has stopped, or (None) neither. For admins of the organization.

    Raise Missing for an organization, group or key that the actor may not see or that does not belong together.
    """
    require_admin_of(actor, org_slug)
    organization = await show_organization(actor, stores.database, org_slug)
    group_no = await _group_no(stores.database, organization, group_id)
    if not any(key.client_id == client_id for key in await _keys_of(actor, stores.database, org_slug)):
        raise Missing("This organization has no such key.")
    number, now_ms = feed_id(organization.organization_id, channel), stores.clock.now_ms()

    async def write(transaction: Transaction) -> None:
        await transaction.run(
            _MARK, feed_id=number, client_id=client_id, group_no=group_no, mark=mark, marked_ms=now_ms
        )
        await trail.record(
            transaction,
            actor,
            "propagation.mark",
            client_id,
            at_ms=now_ms,
            organizations=(org_slug,),
            channel=channel.name,
            group_id=group_id,
            mark=mark,
        )

    await stores.database.write(write, feed_id=number)


async def _keys_of(actor: Actor, database: Database, org_slug: str) -> list[Credential]:
    return [key for key in await list_credentials(actor, database) if org_slug in key.organizations]


async def _group_no(database: Database, organization: Organization, group_id: str | None) -> int:
    if group_id is None:
        return ALL_GROUPS
    names = await group_names(database, [organization.organization_id])
    numbers = {name.group_id: number for (_, number), name in names.items()}
    if group_id not in numbers:
        raise Missing("This organization has no such group.")
    return numbers[group_id]
