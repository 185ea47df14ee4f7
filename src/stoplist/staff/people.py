"""Make people, give and take their rights, and close the door to them.

Each change takes the person's row first, so that changes go one after the other, and holds for the very next request:
no right is remembered between requests. Source: docs/interface.md sections D9 and D11.
"""

import msgspec

from stoplist.actor import ADMIN, Actor, Role
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden, Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.store import find_organization, must_administer
from stoplist.staff import links, sessions
from stoplist.staff.model import NewLink, Person, checked_email
from stoplist.staff.store import Account, find_account, find_person, lock_account, not_found, people_of_rows

_QUERIES = load_queries(__package__)
_CREATE = _QUERIES["create_person"]
_LOCK_ADMINISTRATORS = _QUERIES["lock_administrators"]
_PEOPLE = _QUERIES["people"]
_PEOPLE_OF = _QUERIES["people_of"]
_PUT_ROLE = _QUERIES["put_role"]
_REMOVE_ROLE = _QUERIES["remove_role"]
_SET_ADMINISTRATOR = _QUERIES["set_administrator"]
_SET_DISABLED = _QUERIES["set_disabled"]

_NOT_ONESELF = "Nobody can do this to himself: ask another administrator, so that somebody who can undo it remains."


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
    """The person exists, with these rights; the link lets him choose his password. Refused if there is one already."""
    actor.must_be_administrator()
    email, now_ms = checked_email(email), clock.now_ms()
    if (org_slug is None) != (role is None):
        raise Refused("An organization and a role in it go together: give both or neither.", field="role")

    async def create(transaction: Transaction) -> NewLink:
        await _hold_administrators(transaction, actor)
        organization = None if org_slug is None else await find_organization(transaction, org_slug)
        account = await _create(transaction, actor, email, now_ms, is_administrator=is_administrator, org_slug=org_slug)
        if account is None:
            raise Refused(
                "There is a person with this e-mail address already: give the roles on that person's page.",
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
    """The person has this role in the organization. One who was not known is made, with a link; no other gets one."""
    must_administer(actor, org_slug, field="org_slug")
    email, now_ms = checked_email(email), clock.now_ms()

    async def add(transaction: Transaction) -> tuple[Person, NewLink | None]:
        organization = await find_organization(transaction, org_slug)
        created = await _create(transaction, actor, email, now_ms, org_slug=org_slug)
        account = created or await lock_account(transaction, email)
        await _put_role(transaction, actor, account, organization, role, now_ms)
        link = await links.add_link(transaction, actor, account, now_ms) if created is not None else None
        return _as_seen_by(actor, await find_person(transaction, email)), link

    return await database.write(add)


async def set_role(
    actor: Actor, database: Database, clock: Clock, *, email: str, org_slug: str, role: Role | None
) -> Person:
    """The person has this role in the organization, from the next request on; with None he has none there."""
    must_administer(actor, org_slug, field="org_slug")
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Person:
        organization = await find_organization(transaction, org_slug)
        account = await lock_account(transaction, email)
        before = await find_person(transaction, email)
        if org_slug not in before.roles and not actor.is_administrator:
            raise not_found()  # somebody of another organization, whom this admin does not see
        if role is not None:
            await _put_role(transaction, actor, account, organization, role, now_ms)
        elif org_slug in before.roles:
            _must_not_step_down(actor, before, org_slug, None)
            await transaction.run(
                _REMOVE_ROLE, person_id=account.person_id, organization_id=organization.organization_id
            )
            await _record_role(transaction, actor, before, org_slug, None, now_ms)
        return _as_seen_by(actor, await find_person(transaction, email))

    return await database.write(change)


async def set_administrator(
    actor: Actor, database: Database, clock: Clock, *, email: str, is_administrator: bool
) -> Person:
    """The person is an administrator from the next request on, or is none any more."""
    actor.must_be_administrator()
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Person:
        await _hold_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        if not is_administrator:
            _must_not_be(actor, account)
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
    """Everybody, by address."""
    actor.must_be_administrator()
    return people_of_rows(await database.all(_PEOPLE))


async def people_of(actor: Actor, database: Database, *, org_slug: str) -> list[Person]:
    """Everybody with a role in the organization, by address; their other roles as far as the actor sees them."""
    must_administer(actor, org_slug, field="org_slug")
    organization = await find_organization(database, org_slug)
    rows = await database.all(_PEOPLE_OF, organization_id=organization.organization_id)
    return [_as_seen_by(actor, person) for person in people_of_rows(rows)]


async def show_person(actor: Actor, database: Database, *, email: str) -> Person:
    """The person, as far as the actor sees him; Missing where he does not."""
    person = await find_person(database, email)
    if not (actor.is_administrator or actor.is_person(person.email) or _is_of_an_organization_of(actor, person)):
        raise not_found()
    return _as_seen_by(actor, person)


async def new_link(
    actor: Actor, database: Database, clock: Clock, *, email: str, without_two_step: bool = False
) -> NewLink:
    """The person can choose a new password by this link alone; earlier links are dead, the password is still good.

    `without_two_step`: whoever uses it is asked for no code from then on. An organization's admin may do this only for
    whom he could not take anything over from: somebody who was never in, and has no rights but in his organizations.
    """
    now_ms = clock.now_ms()

    async def make(transaction: Transaction) -> NewLink:
        if actor.is_administrator:
            await _hold_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        person = await find_person(transaction, email)
        _must_let_in(actor, person, without_two_step=without_two_step)
        if person.is_disabled:
            raise Refused("The account is disabled: enable the account first, then make a link.")
        return await links.add_link(transaction, actor, account, now_ms, without_two_step=without_two_step)

    return await database.write(make)


async def disable_person(actor: Actor, database: Database, clock: Clock, *, email: str) -> Person:
    """The door is closed from the next request on: sessions and links have ended, no password opens it."""
    return await _switch(actor, database, clock, email, "person.disable", is_disabled=True)


async def enable_person(actor: Actor, database: Database, clock: Clock, *, email: str) -> Person:
    """The person can sign in again, with the password and the rights of before."""
    return await _switch(actor, database, clock, email, "person.enable", is_disabled=False)


async def _switch(
    actor: Actor, database: Database, clock: Clock, email: str, action: str, *, is_disabled: bool
) -> Person:
    actor.must_be_administrator()
    now_ms = clock.now_ms()

    async def switch(transaction: Transaction) -> Person:
        await _hold_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        if is_disabled:
            _must_not_be(actor, account)
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
    _must_not_step_down(actor, before, organization.slug, role)
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


async def _hold_administrators(transaction: Transaction, actor: Actor) -> None:
    """Of two administrators who close the door to each other at once, the second is none any more, and is refused.

    So he is where he would let somebody in who comes back for him: by a new account, or by a link.
    """
    administrators = {row["email"] for row in await transaction.all(_LOCK_ADMINISTRATORS)}
    if actor.kind == "person" and actor.id not in administrators:
        raise Forbidden("You are not an administrator any more.")


def _must_let_in(actor: Actor, person: Person, *, without_two_step: bool) -> None:
    """Refuse whoever could take an account over by making a link for it."""
    if actor.is_administrator:
        return
    if not _is_of_an_organization_of(actor, person):
        raise not_found()
    was_in = person.has_password or person.last_sign_in_ms is not None
    has_more = person.is_administrator or not actor.administers(person.roles)
    if was_in or has_more or person.is_disabled or without_two_step:
        raise Forbidden("Only an administrator can make a link for this person: ask one.")


def _must_not_be(actor: Actor, account: Account) -> None:
    if actor.is_person(account.email):
        raise Forbidden(_NOT_ONESELF)


def _must_not_step_down(actor: Actor, before: Person, org_slug: str, role: Role | None) -> None:
    if actor.is_person(before.email) and before.roles.get(org_slug) == ADMIN and role != ADMIN:
        raise Forbidden(_NOT_ONESELF)


def _is_of_an_organization_of(actor: Actor, person: Person) -> bool:
    return any(actor.administers((slug,)) for slug in person.roles)


def _as_seen_by(actor: Actor, person: Person) -> Person:
    if actor.is_person(person.email):
        return person
    return msgspec.structs.replace(
        person, roles={slug: role for slug, role in person.roles.items() if actor.sees(slug)}
    )
