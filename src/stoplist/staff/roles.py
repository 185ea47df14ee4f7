"""Give people rights and take them away: roles in organizations, and the right of an administrator.

Each change locks the person's row first, so that changes are made one after the other, and takes effect with the next
request: no right is cached between requests. Source: docs/interface.md section D11.
"""

import msgspec

from stoplist.actor import ADMIN, Actor, Role
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden
from stoplist.organizations.model import Organization
from stoplist.organizations.store import find_organization, require_admin_of
from stoplist.staff import links
from stoplist.staff.model import Person
from stoplist.staff.store import Account, find_person, lock_account, not_found

_QUERIES = load_queries(__package__)
_LOCK_ADMINISTRATORS = _QUERIES["lock_administrators"]
_PUT_ROLE = _QUERIES["put_role"]
_REMOVE_ROLE = _QUERIES["remove_role"]
_SET_ADMINISTRATOR = _QUERIES["set_administrator"]

_NOT_YOUR_OWN_ACCOUNT = "You cannot do this to your own account. Ask another administrator."


async def set_role(
    actor: Actor, database: Database, clock: Clock, *, email: str, org_slug: str, role: Role | None
) -> Person:
    """Set the person's role in the organization, or remove it with None, from the next request on."""
    require_admin_of(actor, org_slug, field="org_slug")
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Person:
        organization = await find_organization(transaction, org_slug)
        account = await lock_account(transaction, email)
        before = await find_person(transaction, email)
        if org_slug not in before.roles and not actor.is_administrator:
            raise not_found()  # a person of another organization, who is not visible to this admin
        if role is not None:
            await put_role(transaction, actor, account, organization, role, now_ms)
        elif org_slug in before.roles:
            _refuse_own_demotion(actor, before, org_slug)
            await transaction.run(
                _REMOVE_ROLE, person_id=account.person_id, organization_id=organization.organization_id
            )
            await _record_role(transaction, actor, before, org_slug, None, now_ms)
        return with_visible_roles(actor, await find_person(transaction, email))

    return await database.write(change)


async def set_administrator(
    actor: Actor, database: Database, clock: Clock, *, email: str, is_administrator: bool
) -> Person:
    """Make the person an administrator or take the right away, from the next request on."""
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Person:
        await lock_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        if not is_administrator:
            refuse_own_account(actor, account)
        if (await find_person(transaction, email)).is_administrator != is_administrator:
            if is_administrator:
                links.require_trusted_invitation(actor, account)
            await transaction.run(
                _SET_ADMINISTRATOR, person_id=account.person_id, is_administrator=int(is_administrator)
            )
            await links.delete_links_of_others(transaction, actor, account)
            await trail.record(
                transaction, actor, "person.role", account.email, at_ms=now_ms, is_administrator=is_administrator
            )
        return await find_person(transaction, email)

    return await database.write(change)


async def put_role(
    transaction: Transaction, actor: Actor, account: Account, organization: Organization, role: Role, now_ms: int
) -> None:
    """Give the person this role, and audit it; nothing changes if the person has it already."""
    before = await find_person(transaction, account.email)
    if before.roles.get(organization.slug) == role:
        return
    _refuse_own_demotion(actor, before, organization.slug)
    if organization.slug not in before.roles:
        links.require_trusted_invitation(actor, account)
    await transaction.run(
        _PUT_ROLE, person_id=account.person_id, organization_id=organization.organization_id, role=role
    )
    await links.delete_links_of_others(transaction, actor, account)
    await _record_role(transaction, actor, before, organization.slug, role, now_ms)


async def lock_administrators(transaction: Transaction, actor: Actor) -> None:
    """Lock all administrators' rows; raise Forbidden if the actor is no longer one of them.

    This serialises their changes: of two administrators who disable each other at once, the second is refused, and can
    no longer create accounts or links either.
    """
    administrators = {row["email"] for row in await transaction.all(_LOCK_ADMINISTRATORS)}
    if actor.kind == "person" and actor.id not in administrators:
        raise Forbidden("You are no longer an administrator.")


def refuse_own_account(actor: Actor, account: Account) -> None:
    """Raise Forbidden if the account is the actor's own."""
    if actor.is_person(account.email):
        raise Forbidden(_NOT_YOUR_OWN_ACCOUNT)


def with_visible_roles(actor: Actor, person: Person) -> Person:
    """Return the person with the roles that the actor may see."""
    if actor.is_person(person.email):
        return person
    return msgspec.structs.replace(
        person, roles={slug: role for slug, role in person.roles.items() if actor.sees(slug)}
    )


def _refuse_own_demotion(actor: Actor, before: Person, org_slug: str) -> None:
    """Raise Forbidden if the actor is an admin of the organization, and is about to change the actor's own role."""
    if actor.is_person(before.email) and before.roles.get(org_slug) == ADMIN:
        raise Forbidden(_NOT_YOUR_OWN_ACCOUNT)


async def _record_role(
    transaction: Transaction, actor: Actor, before: Person, org_slug: str, role: Role | None, now_ms: int
) -> None:
    await trail.record(
        transaction,
        actor,
        "person.role",
        before.email,
        at_ms=now_ms,
        organizations=(org_slug,),
        org_slug=org_slug,
        role=role,
        was=before.roles.get(org_slug),
    )
