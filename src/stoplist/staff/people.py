"""Create people, list them, make links for them, and disable or enable their accounts.

Each change locks the person's row first, so that changes are made one after the other, and takes effect with the next
request: no right is cached between requests. Source: docs/interface.md sections D9 and D11.
"""

from collections.abc import Sequence

from stoplist.actor import Actor, Role
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden, Refused
from stoplist.organizations.store import find_organization, require_admin_of
from stoplist.staff import links, sessions
from stoplist.staff.model import NewLink, Person, checked_email
from stoplist.staff.roles import lock_administrators, put_role, refuse_own_account, with_visible_roles
from stoplist.staff.store import Account, find_account, find_person, lock_account, not_found, people_from_rows
from stoplist.staff.tickets import delete_tickets
from stoplist.staff.totp_secrets import give_up_secret, is_unreadable

_QUERIES = load_queries(__package__)
_CREATE = _QUERIES["create_person"]
_PEOPLE = _QUERIES["people"]
_PEOPLE_OF = _QUERIES["people_of"]
_SET_DISABLED = _QUERIES["set_disabled"]


async def create_person(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    email: str,
    is_administrator: bool = False,
    org_slug: str | None = None,
    role: Role | None = None,
    send: links.SendLink | None = None,
) -> NewLink:
    """Create a person with these rights, and return a link to choose a password. Refused if the address is taken."""
    actor.require_administrator()
    email, now_ms = checked_email(email), clock.now_ms()
    if (org_slug is None) != (role is None):
        raise Refused("An organization and a role in it go together. Give both or neither.", field="role")

    async def create(transaction: Transaction) -> NewLink:
        await lock_administrators(transaction, actor)
        organization = None if org_slug is None else await find_organization(transaction, org_slug)
        account = await create_account(
            transaction, actor, email, now_ms, is_administrator=is_administrator, org_slug=org_slug
        )
        if account is None:
            raise Refused(
                "There is already a person with this e-mail address. Give the roles on that person's page.",
                field="email",
                command="`stoplist user link` makes a new sign-in link.",
            )
        if organization is not None and role is not None:
            await put_role(transaction, actor, account, organization, role, now_ms)
        return await links.add_link(transaction, actor, account, now_ms, send=send)

    return await database.write(create)


async def add_to_organization(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    email: str,
    org_slug: str,
    role: Role,
    send: links.SendLink | None = None,
) -> tuple[Person, NewLink | None]:
    """Give the person this role in the organization. Creates the person, with a link, if the address is new.

    For administrators, who see every account: an admin of the organization invites (invitations.py).
    """
    actor.require_administrator()
    email, now_ms = checked_email(email), clock.now_ms()

    async def add(transaction: Transaction) -> tuple[Person, NewLink | None]:
        organization = await find_organization(transaction, org_slug)
        created = await create_account(transaction, actor, email, now_ms, org_slug=org_slug)
        account = created or await lock_account(transaction, email)
        await put_role(transaction, actor, account, organization, role, now_ms)
        link = await links.add_link(transaction, actor, account, now_ms, send=send) if created is not None else None
        return with_visible_roles(actor, await find_person(transaction, email)), link

    return await database.write(add)


async def create_account(
    transaction: Transaction,
    actor: Actor,
    email: str,
    now_ms: int,
    *,
    is_administrator: bool = False,
    org_slug: str | None = None,
) -> Account | None:
    """Create the account of a canonical address, and audit it; None if there is one already."""
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


async def list_people(actor: Actor, database: Database) -> list[Person]:
    """Return all people by address."""
    actor.require_administrator()
    return people_from_rows(await database.all(_PEOPLE))


async def people_of(actor: Actor, database: Database, *, org_slug: str) -> list[Person]:
    """Return the people with a role in the organization by address, with the roles that the actor may see."""
    require_admin_of(actor, org_slug, field="org_slug")
    organization = await find_organization(database, org_slug)
    rows = await database.all(_PEOPLE_OF, organization_id=organization.organization_id)
    return [with_visible_roles(actor, person) for person in people_from_rows(rows)]


async def show_person(actor: Actor, database: Database, *, email: str) -> Person:
    """Return the person with the roles that the actor may see; Missing if the actor may not see the person."""
    person = await find_person(database, email)
    if not (actor.is_administrator or actor.is_person(person.email) or _administers_organization_of(actor, person)):
        raise not_found()
    return with_visible_roles(actor, person)


async def new_link(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    email: str,
    without_two_step: bool = False,
    secret_keys: Sequence[str] = (),
    is_key_lost: bool = False,
    send: links.SendLink | None = None,
) -> NewLink:
    """Return a new link by which the person can choose a password. Earlier links end; the password stays valid.

    `without_two_step` turns two-step sign-in off once the link is used. An organization's admin may make a link only
    for a person who has never signed in and has roles in the admin's own organizations only; otherwise the admin could
    take the account over. With `without_two_step`, a TOTP secret that none of the `secret_keys` can read is given up at
    once, so that a server can start; recovery codes stay good until the link is used. `is_key_lost`: there is no key,
    and no server has one.
    """
    now_ms = clock.now_ms()

    async def make(transaction: Transaction) -> NewLink:
        if actor.is_administrator:
            await lock_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        person = await find_person(transaction, email)
        _require_may_make_link(actor, person, without_two_step=without_two_step)
        if person.is_disabled:
            raise Refused("The account is disabled. Enable it first, then make a link.")
        if without_two_step and is_unreadable(secret_keys, account, is_key_lost=is_key_lost):
            await give_up_secret(transaction, account)
        return await links.add_link(transaction, actor, account, now_ms, without_two_step=without_two_step, send=send)

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
        await lock_administrators(transaction, actor)
        account = await lock_account(transaction, email)
        if is_disabled:
            refuse_own_account(actor, account)
        if account.is_disabled != is_disabled:
            await transaction.run(_SET_DISABLED, person_id=account.person_id, is_disabled=int(is_disabled))
            await links.delete_links(transaction, account, now_ms)
            await delete_tickets(transaction, account.person_id)
            await sessions.end_all(transaction, account.person_id)
            await trail.record(transaction, actor, action, account.email, at_ms=now_ms)
        return await find_person(transaction, email)

    return await database.write(switch)


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


def _administers_organization_of(actor: Actor, person: Person) -> bool:
    return any(actor.administers((slug,)) for slug in person.roles)
