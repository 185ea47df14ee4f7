"""Sign-in links, by which a person signs in for the first time or replaces a forgotten password.

A link is good once, for 24 hours. Opening a link does not use it up, since mail scanners open every link they find.
Source: docs/interface.md section D11.
"""

from collections.abc import Awaitable, Callable

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.notices.sealed_links import end_links
from stoplist.staff import sessions, tickets, two_step
from stoplist.staff.lifetimes import LINK_MS
from stoplist.staff.model import NewLink, Person, SecondStep, SignedIn, StaffStores
from stoplist.staff.passwords import checked_password, require_unguessable, set_password
from stoplist.staff.store import Account, find_person, lock_account_of_link, person_from_rows

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_link"]
_DELETE = _QUERIES["delete_links"]
_DELETE_OF_OTHERS = _QUERIES["delete_links_of_others"]
_PERSON_OF_LINK = _QUERIES["person_of_link"]
_SET_LET_IN_BY = _QUERIES["set_let_in_by"]
_USE = _QUERIES["use_link"]

SendLink = Callable[[Transaction, int, NewLink, int], Awaitable[None]]
"""Has a link sent to the person of that id, in the transaction that makes it, at that time."""

DEAD_LINK = "This link has already been used, has expired or was replaced by a newer one. Ask for a new one."


async def person_of_link(database: Database, clock: Clock, link_token: str) -> Person | None:
    """Return the person that a valid link is for, or None for any other text. Does not use the link up."""
    if not ids.is_well_formed(link_token, ids.SIGN_IN_LINK):
        return None
    rows = await database.all(_PERSON_OF_LINK, link_hash=ids.hash_secret(link_token), now_ms=clock.now_ms())
    return person_from_rows(rows) if rows else None


async def use_link(
    actor: Actor, stores: StaffStores, *, link_token: str, password: str, user_agent: str
) -> SignedIn | SecondStep:
    """Use the link up, set the password, end every earlier session, and sign the person in.

    Returns SecondStep if a code is still needed. Of two concurrent uses one succeeds; the other is Refused, as is any
    invalid link. An unacceptable password is Refused first (field `password`), and the link stays good.
    """
    chosen = checked_password(password, field="password")
    invited = await person_of_link(stores.database, stores.clock, link_token)
    if invited is None:
        raise Refused(DEAD_LINK)
    await require_unguessable(stores, chosen, email=invited.email, field="password")
    password_hash = await stores.hashing.hash(chosen)
    now_ms, link_hash = stores.clock.now_ms(), ids.hash_secret(link_token)

    async def use(transaction: Transaction) -> SignedIn | SecondStep:
        account = await lock_account_of_link(transaction, link_hash, now_ms)
        if account is None or account.is_disabled:
            raise Refused(DEAD_LINK)
        used = await transaction.one(_USE, link_hash=link_hash, person_id=account.person_id)
        if used is None:
            raise Refused(DEAD_LINK)
        person = msgspec.structs.replace(actor, id=account.email)
        await set_password(transaction, person, account, password_hash, now_ms, by="link")
        await transaction.run(_SET_LET_IN_BY, person_id=account.person_id, let_in_by=used["made_by"] or None)
        await sessions.end_all(transaction, account.person_id)
        if account.totp_secret is not None and used["without_two_step"]:
            await two_step.remove(transaction, person, account, now_ms)
        elif account.totp_secret is not None:
            return SecondStep(await tickets.add_ticket(transaction, account.person_id, now_ms))
        return await sessions.begin(transaction, person, account, user_agent, now_ms, by="link")

    return await stores.database.write(use)


async def add_link(
    transaction: Transaction,
    actor: Actor,
    account: Account,
    now_ms: int,
    *,
    without_two_step: bool = False,
    send: SendLink | None = None,
) -> NewLink:
    """Make a link and delete the earlier ones, within a transaction that holds the person's lock; `send` sends it."""
    link_token, expires_ms = ids.new_secret(ids.SIGN_IN_LINK), now_ms + LINK_MS
    await delete_links(transaction, account, now_ms)
    await transaction.run(
        _ADD,
        link_hash=ids.hash_secret(link_token),
        person_id=account.person_id,
        made_by=_made_by(actor),
        without_two_step=int(without_two_step),
        expires_ms=expires_ms,
    )
    person = await find_person(transaction, account.email)
    await trail.record(
        transaction,
        actor,
        "person.link",
        account.email,
        at_ms=now_ms,
        organizations=person.roles,
        without_two_step=without_two_step,
    )
    link = NewLink(person=person, link_token=link_token, expires_ms=expires_ms)
    if send is not None:
        await send(transaction, account.person_id, link, now_ms)
    return link


async def delete_links(transaction: Transaction, account: Account, now_ms: int) -> None:
    """Delete all links of the person; those that were not sent yet are not sent any more."""
    await transaction.run(_DELETE, person_id=account.person_id)
    await end_links(transaction, account.person_id, now_ms)


async def delete_links_of_others(transaction: Transaction, actor: Actor, account: Account) -> None:
    """Delete the links that admins of other organizations made, since a new right would otherwise come with them."""
    await transaction.run(_DELETE_OF_OTHERS, person_id=account.person_id, made_by=_made_by(actor))


def require_trusted_invitation(actor: Actor, account: Account) -> None:
    """Raise Refused if an organization admin let this person in and somebody else gives a right.

    That admin may have used the link, and would then hold any rights granted to this address. The text, which names the
    admin, is for administrators: an organization's admin gives a new right by an invitation alone (invitations.py),
    whose acceptance is refused earlier.
    """
    if account.let_in_by in (None, _made_by(actor)):
        return
    raise Refused(
        f"This person was let in by a link that {account.let_in_by} made, who may hold the account. "
        "Make a new sign-in link, and give the right once the person has used it.",
        command="`stoplist user link` makes one.",
    )


def _made_by(actor: Actor) -> str:
    return "" if actor.is_administrator else actor.id
