"""Create, list, rename and close organizations, which are never deleted.

Source: docs/interface.md section D5; who may do what: section D11.
"""

import secrets

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused
from stoplist.organizations import groups
from stoplist.organizations.model import (
    Organization,
    checked_colour,
    checked_contact_line,
    checked_name,
    checked_slug,
)
from stoplist.organizations.store import (
    find_organization,
    lock_open_organization,
    lock_organization,
    organization_from_row,
    require_admin_of,
    require_visible,
)

_QUERIES = load_queries(__package__)
_CLOSE = _QUERIES["close_organization"]
_CREATE = _QUERIES["create_organization"]
_LIST = _QUERIES["organizations"]
_BY_SLUGS = _QUERIES["organizations_named"]
_RENAME = _QUERIES["rename_organization"]
_SET_LINK_PAGE = _QUERIES["set_link_page"]


async def create_organization(
    actor: Actor, database: Database, clock: Clock, *, slug: str, name: str, default_group: str | None = None
) -> Organization:
    """Create an organization, with a default group if a name for one is given. Refused if the slug is taken."""
    actor.require_administrator()
    checked_slug(slug)
    name = checked_name(name, "The name of an organization")
    group_name = None if default_group is None else checked_name(default_group, "The name of a group", "default_group")
    now_ms = clock.now_ms()

    async def create(transaction: Transaction) -> Organization:
        created = await transaction.one(_CREATE, slug=slug, name=name, created_ms=now_ms, uid=secrets.token_hex(16))
        if created is None:
            raise Refused(
                f"The slug {slug} is taken, perhaps by a closed organization. Choose another one.", field="slug"
            )
        await trail.record(
            transaction, actor, "organization.create", slug, at_ms=now_ms, organizations=(slug,), name=name
        )
        if group_name is not None:
            await groups.add_group(
                transaction,
                actor,
                await lock_organization(transaction, slug),
                group_name,
                is_default=True,
                now_ms=now_ms,
            )
        return await lock_organization(transaction, slug)

    return await database.write(create)


async def list_organizations(actor: Actor, database: Database) -> list[Organization]:
    """Return the organizations that the actor may see, by slug, closed ones included."""
    if actor.is_administrator:
        return [organization_from_row(row) for row in await database.all(_LIST)]
    # Each by its slug, so that a person with few roles does not read all organizations.
    rows = await database.all(_BY_SLUGS, slugs=json_text(sorted(actor.roles)))
    return [organization_from_row(row) for row in sorted(rows, key=lambda row: str(row["slug"]))]


async def show_organization(actor: Actor, database: Database, slug: str) -> Organization:
    """Return the organization with that slug, closed or not; Missing if there is none that the actor may see."""
    require_visible(actor, slug)
    return await find_organization(database, slug)


async def rename_organization(actor: Actor, database: Database, clock: Clock, *, slug: str, name: str) -> Organization:
    """Rename the organization; its slug never changes."""
    require_admin_of(actor, slug)
    name = checked_name(name, "The name of an organization")
    now_ms = clock.now_ms()

    async def rename(transaction: Transaction) -> Organization:
        organization = await lock_open_organization(transaction, slug)
        if organization.name != name:
            await transaction.run(_RENAME, organization_id=organization.organization_id, name=name)
            await trail.record(
                transaction,
                actor,
                "organization.rename",
                slug,
                at_ms=now_ms,
                organizations=(slug,),
                name=name,
                was=organization.name,
            )
        return await lock_organization(transaction, slug)

    return await database.write(rename)


async def set_link_page(
    actor: Actor, database: Database, clock: Clock, *, slug: str, contact_line: str, accent_colour: str
) -> Organization:
    """Set what the page behind the organization's opt-out links shows; an empty text removes it.

    A closed organization can be changed, because its links go on working.
    """
    require_admin_of(actor, slug)
    line, colour = checked_contact_line(contact_line), checked_colour(accent_colour)
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Organization:
        organization = await lock_organization(transaction, slug)
        if (organization.contact_line, organization.accent_colour) != (line, colour):
            await transaction.run(
                _SET_LINK_PAGE,
                organization_id=organization.organization_id,
                contact_line=line,
                accent_colour=colour,
            )
            await trail.record(
                transaction,
                actor,
                "organization.link_page",
                slug,
                at_ms=now_ms,
                organizations=(slug,),
                contact_line=line,
                accent_colour=colour,
                was={"contact_line": organization.contact_line, "accent_colour": organization.accent_colour},
            )
        return await lock_organization(transaction, slug)

    return await database.write(change)


async def close_organization(actor: Actor, database: Database, clock: Clock, *, slug: str) -> Organization:
    """Close the organization permanently. Requests for it are refused; its records and its slug stay."""
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def close(transaction: Transaction) -> Organization:
        organization = await lock_open_organization(transaction, slug)
        await transaction.run(_CLOSE, organization_id=organization.organization_id, closed_ms=now_ms)
        await trail.record(transaction, actor, "organization.close", slug, at_ms=now_ms, organizations=(slug,))
        return await lock_organization(transaction, slug)

    return await database.write(close)
