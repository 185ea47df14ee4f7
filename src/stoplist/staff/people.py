"""Create people, give and take away their rights, and disable or enable their accounts.

Each change locks the person's row first, so that changes are made one after the other, and takes effect with the next
request: no right is cached between requests. Source: docs/interface.md sections D9 and D11.
"""

import msgspec

from stoplist.actor import ADMIN, Actor, Role
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden, Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.store import find_organization, require_admin_of
from stoplist.staff import links, sessions
from stoplist.staff.model import NewLink, Person, checked_email
from stoplist.staff.store import Account, find_account, find_person, lock_account, not_found, people_from_rows

_QUERIES = load_queries(__package__)
_CREATE = _QUERIES["create_person"]
_LOCK_ADMINISTRATORS = _QUERIES["lock_administrators"]
_PEOPLE = _QUERIES["people"]
_PEOPLE_OF = _QUERIES["people_of"]
_PUT_ROLE = _QUERIES["put_role"]
_REMOVE_ROLE = _QUERIES["remove_role"]
_SET_ADMINISTRATOR = _QUERIES["set_administrator"]
_SET_DISABLED = _QUERIES["set_disabled"]

_NOT_YOUR_OWN_ACCOUNT = "You cannot do this to your own account. Ask another administrator."


async def create_person(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    email: str,
    is_administrator: bool = False,
    org_slug: str | None = None,
    role: Role | None = None,
) -> NewLink:
    """Create a person with these rights, and return a link to choose a password. Refused if the address is taken."""
    actor.require_administrator()
    email, now_ms = checked_email(email), clock.now_ms()
    if (org_slug is None) != (role is None):
        raise Refused("An organization and a role in it go together. Give both or neither.", field="role")

    async def create(transaction: Transaction) -> NewLink:
        await _lock_administrators(transaction, actor)
        organization = None if org_slug is None else await find_organization(transaction, org_slug)
        account = await _create(transaction, actor, email, now_ms, is_administrator=is_administrator, org_slug=org_slug)
        if account is None:
            raise Refused(
                "There is already a person with this e-mail address. Give the roles on that person's page.",
                field="email",
                command="`stoplist user link` makes a new sign-in link.",
            )
        if organization is not None and role is not None:
            await _put_role(transaction, actor, account, organization, role, now_ms)
        return await links.add_link(transaction, actor, account, now_ms)

    return await database.write(create)


async def add_to_organization(
    actor: Actor, database: Database, clock: Clock, *, email: str, org_slug: str, role: Role
) -> tuple[Person, NewLink | None]:
    """Give the person this role in the organization. Creates the person, with a link, if the address is new."""
    require_admin_of(actor, org_slug, field="org_slug")
    email, now_ms = checked_email(email), clock.now_ms()

    async def add(transaction: Transaction) -> tuple[Person, NewLink | None]:
        organization = await find_organization(transaction, org_slug)
        created = await _create(transaction, actor, email, now_ms, org_slug=org_slug)
        account = created or await lock_account(transaction, email)
        await _put_role(transaction, actor, account, organization, role, now_ms)
        link = await links.add_link(transaction, actor, account, now_ms) if created is not None else None
        return _with_visible_roles(actor, await find_person(transaction, email)), link

    return await database.write(add)


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
            await _put_role(transaction, actor, account, organization, role, now_ms)
        elif org_slug in before.roles:
            _refuse_own_demotion(actor, before, org_slug, None)
            await transaction.run(
                _REMOVE_ROLE, person_id=account.person_id, organization_id=organization.organization_id
            )
            await _record_role(transaction, actor, before, org_slug, None, now_ms)
        return _with_visible_roles(actor, await find_person(transaction, email))

    return await database.write(change)


async def set_administrator(
    actor: Actor, database: Database, clock: Clock, *, email: str, is_administrator: bool
) -> Person:
    """Make the person an administrator or take the right away, from the next request on."""
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Person:
        await _lock_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        if not is_administrator:
            _refuse_own_account(actor, account)
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


async def list_people(actor: Actor, database: Database) -> list[Person]:
    """Return all people by address."""
    actor.require_administrator()
    return people_from_rows(await database.all(_PEOPLE))


async def people_of(actor: Actor, database: Database, *, org_slug: str) -> list[Person]:
    """Return the people with a role in the organization by address, with the roles that the actor may see."""
    require_admin_of(actor, org_slug, field="org_slug")
    organization = await find_organization(database, org_slug)
    rows = await database.all(_PEOPLE_OF, organization_id=organization.organization_id)
    return [_with_visible_roles(actor, person) for person in people_from_rows(rows)]


async def show_person(actor: Actor, database: Database, *, email: str) -> Person:
    """Return the person with the roles that the actor may see; Missing if the actor may not see the person."""
    person = await find_person(database, email)
    if not (actor.is_administrator or actor.is_person(person.email) or _administers_organization_of(actor, person)):
        raise not_found()
    return _with_visible_roles(actor, person)


async def new_link(
    actor: Actor, database: Database, clock: Clock, *, email: str, without_two_step: bool = False
) -> NewLink:
    """Return a new link by which the person can choose a password. Earlier links end; the password stays valid.

    `without_two_step` turns two-step sign-in off once the link is used. An organization's admin may make a link only
    for a person who has never signed in and has roles in the admin's own organizations only; otherwise the admin could
    take the account over.
    """
    now_ms = clock.now_ms()

    async def make(transaction: Transaction) -> NewLink:
        if actor.is_administrator:
            await _lock_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        person = await find_person(transaction, email)
        _require_may_make_link(actor, person, without_two_step=without_two_step)
        if person.is_disabled:
            raise Refused("The account is disabled. Enable it first, then make a link.")
        return await links.add_link(transaction, actor, account, now_ms, without_two_step=without_two_step)

    return await database.write(make)


async def disable_person(actor: Actor, database: Database, clock: Clock, *, email: str) -> Person:
    """Disable the account from the next request on. Ends its sessions and links; the password no longer works."""
    return await _enable_or_disable(actor, database, clock, email, "person.disable", is_disabled=True)


async def enable_person(actor: Actor, database: Database, clock: Clock, *, email: str) -> Person:
    """Enable the account again, with its former password and rights."""
    return await _enable_or_disable(actor, database, clock, email, "person.enable", is_disabled=False)


async def _enable_or_disable(
    actor: Actor, database: Database, clock: Clock, email: str, action: str, *, is_disabled: bool
) -> Person:
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def switch(transaction: Transaction) -> Person:
        await _lock_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        if is_disabled:
            _refuse_own_account(actor, account)
        if account.is_disabled != is_disabled:
            await transaction.run(_SET_DISABLED, person_id=account.person_id, is_disabled=int(is_disabled))
            await links.delete_links(transaction, account)
            await sessions.end_all(transaction, account.person_id)
            await trail.record(transaction, actor, action, account.email, at_ms=now_ms)
        return await find_person(transaction, email)

    return await database.write(switch)


async def _create(
    transaction: Transaction,
    actor: Actor,
    email: str,
    now_ms: int,
    *,
    is_administrator: bool = False,
    org_slug: str | None = None,
) -> Account | None:
    created = await transaction.one(_CREATE, email=email, is_administrator=int(is_administrator), created_ms=now_ms)
    if created is None:
        return None
    organizations = () if org_slug is None else (org_slug,)
    await trail.record(
        transaction,
        actor,
        "person.create",
        email,
        at_ms=now_ms,
        organizations=organizations,
        is_administrator=is_administrator,
    )
    return await find_account(transaction, email)


async def _put_role(
    transaction: Transaction, actor: Actor, account: Account, organization: Organization, role: Role, now_ms: int
) -> None:
    before = await find_person(transaction, account.email)
    if before.roles.get(organization.slug) == role:
        return
    _refuse_own_demotion(actor, before, organization.slug, role)
    if organization.slug not in before.roles:
        links.require_trusted_invitation(actor, account)
    await transaction.run(
        _PUT_ROLE, person_id=account.person_id, organization_id=organization.organization_id, role=role
    )
    await links.delete_links_of_others(transaction, actor, account)
    await _record_role(transaction, actor, before, organization.slug, role, now_ms)


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


async def _lock_administrators(transaction: Transaction, actor: Actor) -> None:
    """Lock all administrators' rows; raise Forbidden if the actor is no longer one of them.

    This serialises their changes: of two administrators who disable each other at once, the second is refused, and can
    no longer create accounts or links either.
    """
    administrators = {row["email"] for row in await transaction.all(_LOCK_ADMINISTRATORS)}
    if actor.kind == "person" and actor.id not in administrators:
        raise Forbidden("You are no longer an administrator.")


def _require_may_make_link(actor: Actor, person: Person, *, without_two_step: bool) -> None:
    """Raise Forbidden if the actor could take the account over by making a link for it."""
    if actor.is_administrator:
        return
    if not _administers_organization_of(actor, person):
        raise not_found()
    has_signed_in = person.has_password or person.last_sign_in_ms is not None
    has_other_rights = person.is_administrator or not actor.administers(person.roles)
    if has_signed_in or has_other_rights or person.is_disabled or without_two_step:
        raise Forbidden("Only an administrator can make a link for this person.")


def _refuse_own_account(actor: Actor, account: Account) -> None:
    if actor.is_person(account.email):
        raise Forbidden(_NOT_YOUR_OWN_ACCOUNT)


def _refuse_own_demotion(actor: Actor, before: Person, org_slug: str, role: Role | None) -> None:
    if actor.is_person(before.email) and before.roles.get(org_slug) == ADMIN and role != ADMIN:
        raise Forbidden(_NOT_YOUR_OWN_ACCOUNT)


def _administers_organization_of(actor: Actor, person: Person) -> bool:
    return any(actor.administers((slug,)) for slug in person.roles)


def _with_visible_roles(actor: Actor, person: Person) -> Person:
    if actor.is_person(person.email):
        return person
    return msgspec.structs.replace(
        person, roles={slug: role for slug, role in person.roles.items() if actor.sees(slug)}
    )
