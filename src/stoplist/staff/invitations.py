"""Invitations: an organization's admin offers a role, and the person accepts it.

An invitation is made without a look at accounts, so the admin learns nothing about one: not whether it exists, nor how
or when its person signs in. A person with an account accepts on their account page. A person without one chooses a
password by the link of the invitation, which accepts it too. Source: docs/interface.md section D11.
"""

from collections.abc import Awaitable, Callable

import msgspec

from stoplist import ids
from stoplist.actor import ADMIN, ADMINISTER, Actor, Role
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing, Refused
from stoplist.organizations.store import find_organization, lock_open_organization, require_admin_of
from stoplist.staff import sessions
from stoplist.staff.lifetimes import INVITATION_MS, LINK_MS
from stoplist.staff.model import Invitation, NewInvitation, SignedIn, StaffStores, canonical_or_none, checked_email
from stoplist.staff.passwords import checked_password, require_unguessable, set_password
from stoplist.staff.people import create_account
from stoplist.staff.roles import put_role
from stoplist.staff.store import Account, find_person, lock_account

_QUERIES = load_queries(__package__)
_DELETE = _QUERIES["delete_invitation"]
_DELETE_OF_LINK = _QUERIES["delete_invitation_of_link"]
_FOR_PERSON = _QUERIES["invitations_for_person"]
_HAS_ROLE = _QUERIES["has_role"]
_OF_LINK = _QUERIES["invitation_of_link"]
_OF_ORGANIZATION = _QUERIES["invitations_of_organization"]
_PUT = _QUERIES["put_invitation"]
_SET_LET_IN_BY = _QUERIES["set_let_in_by"]

SendInvitation = Callable[[Transaction, NewInvitation, int], Awaitable[None]]
"""Has an invitation sent to its address, in the transaction that makes it, at that time."""

NO_INVITATION = "There is no such invitation. It may have been withdrawn, replaced or answered, or has expired."
_DEAD_LINK = "This invitation was answered, withdrawn or replaced by a newer one, or the link is older than 24 hours."


async def invite(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    email: str,
    org_slug: str,
    role: Role,
    send: SendInvitation | None = None,
) -> NewInvitation:
    """Offer the role to whoever has this address, and return a link for a person without an account.

    Replaces an earlier invitation of the address to the organization. Refused only if the address is invalid, or has a
    role in the organization already, which the actor may see. `send` sends the link.
    """
    require_admin_of(actor, org_slug, field="org_slug")
    email, now_ms, token = checked_email(email), clock.now_ms(), ids.new_secret(ids.INVITATION)

    async def add(transaction: Transaction) -> NewInvitation:
        organization = await lock_open_organization(transaction, org_slug)
        has_role = await transaction.one(_HAS_ROLE, organization_id=organization.organization_id, email=email)
        if has_role is not None:
            raise Refused("This person has a role in the organization already. Change it on their page.", field="email")
        await transaction.run(
            _PUT,
            organization_id=organization.organization_id,
            email=email,
            role=role,
            link_hash=ids.hash_secret(token),
            invited_by=actor.id,
            created_ms=now_ms,
        )
        await _record(transaction, actor, "person.invite", email, org_slug, role, now_ms)
        new = NewInvitation(
            Invitation(
                org_slug=org_slug,
                org_name=organization.name,
                email=email,
                role=role,
                invited_by=actor.id,
                created_ms=now_ms,
                expires_ms=now_ms + INVITATION_MS,
            ),
            token,
            now_ms + LINK_MS,
        )
        if send is not None:
            await send(transaction, new, now_ms)
        return new

    return await database.write(add)


async def list_invitations(actor: Actor, database: Database, clock: Clock, *, org_slug: str) -> list[Invitation]:
    """Return the organization's open invitations by address."""
    require_admin_of(actor, org_slug, field="org_slug")
    organization = await find_organization(database, org_slug)
    rows = await database.all(
        _OF_ORGANIZATION, organization_id=organization.organization_id, since_ms=clock.now_ms() - INVITATION_MS
    )
    return [_from_row(row) for row in rows]


async def own_invitations(actor: Actor, database: Database, clock: Clock) -> list[Invitation]:
    """Return the open invitations of the person who acts, by organization."""
    rows = await database.all(_FOR_PERSON, email=actor.id, since_ms=clock.now_ms() - INVITATION_MS)
    return [_from_row(row) for row in rows]


async def withdraw(actor: Actor, database: Database, clock: Clock, *, email: str, org_slug: str) -> None:
    """Delete an invitation that nobody has answered yet; Missing if there is none."""
    require_admin_of(actor, org_slug, field="org_slug")
    await _end(actor, database, clock, canonical_or_none(email) or "", org_slug, "person.invitation_withdraw")


async def decline(actor: Actor, database: Database, clock: Clock, *, org_slug: str) -> None:
    """Decline an invitation of the person who acts; Missing if there is none."""
    await _end(actor, database, clock, actor.id, org_slug, "person.invitation_decline")


async def accept(actor: Actor, database: Database, clock: Clock, *, org_slug: str) -> None:
    """Take the role that an invitation offers to the person who acts.

    Missing if there is none, Refused if its sender may no longer offer the role.
    """
    now_ms = clock.now_ms()

    async def take(transaction: Transaction) -> None:
        account = await lock_account(transaction, actor.id)
        await _take_role(
            transaction, actor, account, await _taken(transaction, account.email, org_slug, now_ms), now_ms
        )

    await database.write(take)


async def invitation_of_link(database: Database, clock: Clock, token: str) -> Invitation | None:
    """Return the invitation that a link is for, or None for any other text and for links older than 24 hours.

    The same whether the address has an account or not.
    """
    if not ids.is_well_formed(token, ids.INVITATION):
        return None
    row = await database.one(_OF_LINK, link_hash=ids.hash_secret(token), since_ms=clock.now_ms() - LINK_MS)
    return None if row is None else _from_row(row)


async def accept_by_link(actor: Actor, stores: StaffStores, *, token: str, password: str, user_agent: str) -> SignedIn:
    """Create the account of a person who has none, with this password and the role, and sign the person in.

    Refused for a link that is not valid, for a bad password (field `password`; the link stays good), and if there is
    an account: its person signs in and accepts there.
    """
    chosen = checked_password(password, field="password")
    invitation = await invitation_of_link(stores.database, stores.clock, token)
    if invitation is None:
        raise Refused(_DEAD_LINK)
    await require_unguessable(stores, chosen, email=invitation.email, field="password")
    password_hash = await stores.hashing.hash(chosen)
    now_ms, person = stores.clock.now_ms(), msgspec.structs.replace(actor, kind="person", id=invitation.email)

    async def take(transaction: Transaction) -> SignedIn:
        row = await transaction.one(_DELETE_OF_LINK, link_hash=ids.hash_secret(token), since_ms=now_ms - LINK_MS)
        if row is None:
            raise Refused(_DEAD_LINK)
        account = await create_account(transaction, person, invitation.email, now_ms, org_slug=invitation.org_slug)
        if account is None:
            raise Refused("This address has an account. Sign in, and accept the invitation on the page Your account.")
        taken = _from_row({**row, "slug": invitation.org_slug, "name": invitation.org_name})
        inviter = await _take_role(transaction, person, account, taken, now_ms)
        await set_password(transaction, person, account, password_hash, now_ms, by="link")
        await transaction.run(
            _SET_LET_IN_BY, person_id=account.person_id, let_in_by=None if inviter.is_administrator else inviter.id
        )
        return await sessions.begin(transaction, person, account, user_agent, now_ms, by="link")

    return await stores.database.write(take)


async def _taken(transaction: Transaction, email: str, org_slug: str, now_ms: int) -> Invitation:
    """Delete and return the invitation: of two concurrent answers, one finds it."""
    organization = await find_organization(transaction, org_slug)
    row = await transaction.one(
        _DELETE, organization_id=organization.organization_id, email=email, since_ms=now_ms - INVITATION_MS
    )
    if row is None:
        raise Missing(NO_INVITATION)
    return _from_row({**row, "slug": organization.slug, "name": organization.name})


async def _take_role(
    transaction: Transaction, actor: Actor, account: Account, invitation: Invitation, now_ms: int
) -> Actor:
    """Give the account the role in the name of the inviter, whom this returns; Refused if they may not any longer."""
    inviter = await _inviter(transaction, invitation)
    if account.let_in_by not in (None, "" if inviter.is_administrator else inviter.id):
        raise Refused(
            "Your account was opened by a link that an admin of another organization made. Ask an administrator for a "
            "new sign-in link, use it, then accept the invitation."
        )
    organization = await lock_open_organization(transaction, invitation.org_slug)
    await _record(
        transaction, actor, "person.invitation_accept", account.email, invitation.org_slug, invitation.role, now_ms
    )
    if invitation.org_slug not in (await find_person(transaction, account.email)).roles:  # else it would be lowered
        await put_role(transaction, inviter, account, organization, invitation.role, now_ms)
    return inviter


async def _inviter(transaction: Transaction, invitation: Invitation) -> Actor:
    """Return the person who invited; Refused if that person could not invite any longer."""
    try:
        inviter = await find_person(transaction, invitation.invited_by)
    except Missing:
        inviter = None
    may = inviter is not None and (inviter.is_administrator or inviter.roles.get(invitation.org_slug) == ADMIN)
    if inviter is None or inviter.is_disabled or not may:
        raise Refused("The person who sent this invitation may no longer give roles. Ask for a new invitation.")
    rights = frozenset((ADMINISTER,)) if inviter.is_administrator else frozenset()
    return Actor(kind="person", id=inviter.email, may=rights, roles=inviter.roles)


async def _end(actor: Actor, database: Database, clock: Clock, email: str, org_slug: str, action: str) -> None:
    now_ms = clock.now_ms()

    async def end(transaction: Transaction) -> None:
        invitation = await _taken(transaction, email, org_slug, now_ms)
        await _record(transaction, actor, action, email, org_slug, invitation.role, now_ms)

    await database.write(end)


async def _record(
    transaction: Transaction, actor: Actor, action: str, email: str, org_slug: str, role: Role, now_ms: int
) -> None:
    await trail.record(
        transaction, actor, action, email, at_ms=now_ms, organizations=(org_slug,), org_slug=org_slug, role=role
    )


def _from_row(row: Row) -> Invitation:
    return Invitation(
        org_slug=row["slug"],
        org_name=row["name"],
        email=row["email"],
        role=row["role"],
        invited_by=row["invited_by"],
        created_ms=row["created_ms"],
        expires_ms=row["created_ms"] + INVITATION_MS,
    )
