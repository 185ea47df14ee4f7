"""Passwords: what can be one, and how a person changes his.

A password is compared in NFC (RFC 8265 section 4.2), since keyboards write the same letter in different ways; its
length is counted in characters of that form. Nothing else is asked of it. Source: docs/interface.md section D11.
"""

import unicodedata
from contextlib import suppress

import msgspec

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden, RateLimited, Refused
from stoplist.staff import attempts, sessions
from stoplist.staff.attempts import Attempt
from stoplist.staff.model import Person, StaffStores
from stoplist.staff.store import Account, find_account, find_person, lock_account, not_found

_QUERIES = load_queries(__package__)
_DELETE_LINKS = _QUERIES["delete_links"]
_REHASH = _QUERIES["rehash_password"]
_SET = _QUERIES["set_password"]

FEWEST_CHARACTERS, MOST_CHARACTERS = 12, 128
# NFC makes one character of four at most.
_MOST_TYPED = 4 * MOST_CHARACTERS
WRONG_PASSWORD = "That is not your password: type the one that you sign in with."


def checked_password(text: str, *, field: str) -> bytes:
    """What is hashed of a new password; Refused unless it has 12 to 128 characters, none of them half a character."""
    typed = typed_password(text)
    length = len(unicodedata.normalize("NFC", text[: _MOST_TYPED + 1]))
    if typed is None and length <= MOST_CHARACTERS:
        raise Refused("This password holds something that is no character: type it anew.", field=field)
    if typed is None or length < FEWEST_CHARACTERS:
        raise Refused(
            f"A password has {FEWEST_CHARACTERS} to {MOST_CHARACTERS} characters: a few words make a good one.",
            field=field,
        )
    return typed


def typed_password(text: str) -> bytes | None:
    """What is compared of a password as it was typed; None where it cannot be anybody's."""
    if len(text) > _MOST_TYPED:
        return None
    normal = unicodedata.normalize("NFC", text)
    if len(normal) > MOST_CHARACTERS:
        return None
    try:
        return normal.encode()
    except UnicodeEncodeError:  # surrogates
        return None


async def is_right(stores: StaffStores, attempt: Attempt, account: Account | None, password: str) -> bool:
    """Whether it is the account's password and the door is open to it; the same work for whatever account or none."""
    typed = typed_password(password)
    password_hash = None if account is None or account.is_disabled or typed is None else account.password_hash
    return await attempts.with_attempt(
        stores, attempt, lambda: stores.hashing.is_right(b"nothing" if typed is None else typed, password_hash)
    )


async def own_account(actor: Actor, stores: StaffStores) -> Account:
    """The account of the person who acts."""
    account = await find_account(stores.database, actor.id) if actor.kind == "person" else None
    if account is None:
        raise not_found()
    return account


async def confirm(
    actor: Actor, stores: StaffStores, account: Account, password: str, *, field: str, what: str
) -> Attempt:
    """The person who acts has typed his password once more; else Refused, and it counts like a failed sign-in.

    What is then done forgets the attempt.
    """
    attempt = await attempts.begin(stores, account.email, source=actor.source_ip)
    if not await is_right(stores, attempt, account, password):
        await attempts.failed(actor, stores, attempt, email=account.email, what=what)
        raise Refused(WRONG_PASSWORD, field=field)
    return attempt


async def change_password(actor: Actor, stores: StaffStores, *, session_token: str, current: str, new: str) -> Person:
    """This is the password from now on; the person's other sessions and links have ended, the one that asks stays."""
    chosen = checked_password(new, field="new")
    account = await own_account(actor, stores)
    session = await sessions.find_session(stores.database, stores.clock, session_token)
    if session is None or session.person.email != account.email:
        raise Forbidden("This session has ended: sign in again.")
    attempt = await confirm(actor, stores, account, current, field="current", what="password")
    password_hash = await attempts.with_attempt(stores, attempt, lambda: stores.hashing.hash(chosen))
    now_ms = stores.clock.now_ms()

    async def change(transaction: Transaction) -> Person:
        held = await lock_account(transaction, account.email)
        if held.password_hash != account.password_hash or held.is_disabled:
            raise Refused(WRONG_PASSWORD, field="current")
        await attempts.forget(transaction, attempt)
        await set_password(transaction, actor, held, password_hash, now_ms, by="password")
        await sessions.end_all(transaction, held.person_id, but=session.session_id)
        return await find_person(transaction, held.email)

    return await stores.database.write(change)


async def set_password(
    transaction: Transaction, actor: Actor, account: Account, password_hash: str, now_ms: int, *, by: str
) -> None:
    """Within a transaction that holds the person: this is the password, and no link is good any more."""
    await transaction.run(_SET, person_id=account.person_id, password_hash=password_hash)
    await transaction.run(_DELETE_LINKS, person_id=account.person_id)
    await trail.record(transaction, actor, "person.password", account.email, at_ms=now_ms, by=by)


async def with_current_hash(stores: StaffStores, account: Account, password: str) -> Account:
    """The account, whose password was just seen to be right, with a hash by the parameters of this release."""
    typed = typed_password(password)
    if account.password_hash is None or typed is None or not stores.hashing.is_outdated(account.password_hash):
        return account
    with suppress(RateLimited):  # the next time will do
        password_hash = await stores.hashing.hash(typed)
        was = account.password_hash

        async def replace(transaction: Transaction) -> int:
            return await transaction.run(_REHASH, person_id=account.person_id, password_hash=password_hash, was=was)

        if await stores.database.write(replace):
            return msgspec.structs.replace(account, password_hash=password_hash)
    return account
