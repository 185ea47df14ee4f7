"""Passwords: which are acceptable, and how a person changes their own.

A password is compared in NFC (RFC 8265 section 4.2), since keyboards write the same letter in different ways. Its
length is counted in characters of that form. A new one must not be easy to guess (password_strength.py).
Source: docs/interface.md section D11.
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
from stoplist.staff.password_strength import holds_address, is_guessable
from stoplist.staff.store import Account, find_account, find_person, lock_account, not_found
from stoplist.staff.tickets import delete_tickets

_QUERIES = load_queries(__package__)
_DELETE_LINKS = _QUERIES["delete_links"]
_REHASH = _QUERIES["rehash_password"]
_SET = _QUERIES["set_password"]

MIN_CHARACTERS, MAX_CHARACTERS = 12, 128
# NFC composes at most four characters into one.
_MAX_TYPED_CHARACTERS = 4 * MAX_CHARACTERS
WRONG_PASSWORD = "That is not your password. Enter the one that you sign in with."


def checked_password(text: str, *, field: str) -> bytes:
    """Return the bytes to hash of a new password; Refused unless it has 12 to 128 characters and no lone surrogate."""
    normalized = normalized_password(text)
    length = len(unicodedata.normalize("NFC", text[: _MAX_TYPED_CHARACTERS + 1]))
    if normalized is None and length <= MAX_CHARACTERS:
        raise Refused("This password contains an invalid character. Type it again.", field=field)
    if normalized is None or length < MIN_CHARACTERS:
        raise Refused(
            f"A password has {MIN_CHARACTERS} to {MAX_CHARACTERS} characters. A few words make a good one.",
            field=field,
        )
    return normalized


async def require_unguessable(stores: StaffStores, password: bytes, *, email: str, field: str) -> None:
    """Raise Refused if a new password holds the person's e-mail address, or if few guesses find it."""
    text = password.decode()
    if holds_address(text, email):
        raise Refused("This password contains your e-mail address. Choose one that nobody can know.", field=field)
    if await stores.hashing.run(lambda: is_guessable(text, email)):
        raise Refused(
            "This password is easy to guess: it is common, or made of common words, patterns or parts of your address. "
            "A few unrelated words make a good one.",
            field=field,
        )


def normalized_password(text: str) -> bytes | None:
    """Return the bytes to compare of a password as typed, or None if no account can have this password."""
    if len(text) > _MAX_TYPED_CHARACTERS:
        return None
    normal = unicodedata.normalize("NFC", text)
    if len(normal) > MAX_CHARACTERS:
        return None
    try:
        return normal.encode()
    except UnicodeEncodeError:  # surrogates
        return None


async def is_correct(stores: StaffStores, attempt: Attempt, account: Account | None, password: str) -> bool:
    """Return whether this is the password of an enabled account; the work is the same for any account or none."""
    normalized = normalized_password(password)
    password_hash = None if account is None or account.is_disabled or normalized is None else account.password_hash
    return await attempts.with_attempt(
        stores,
        attempt,
        lambda: stores.hashing.is_correct(b"nothing" if normalized is None else normalized, password_hash),
    )


async def own_account(actor: Actor, stores: StaffStores) -> Account:
    """Return the account of the person who acts; Missing if the actor has none."""
    account = await find_account(stores.database, actor.id) if actor.kind == "person" else None
    if account is None:
        raise not_found()
    return account


async def confirm(
    actor: Actor, stores: StaffStores, account: Account, password: str, *, field: str, what: str
) -> Attempt:
    """Check the password of the person who acts; Refused if it is wrong, which counts like a failed sign-in.

    The caller forgets the returned attempt once its own change succeeds.
    """
    attempt = await attempts.begin(stores, account.email, source=actor.source_ip)
    if not await is_correct(stores, attempt, account, password):
        await attempts.record_failure(actor, stores, attempt, email=account.email, what=what)
        raise Refused(WRONG_PASSWORD, field=field)
    return attempt


async def change_password(actor: Actor, stores: StaffStores, *, session_token: str, current: str, new: str) -> Person:
    """Set the password of the person who acts, and end their links and their sessions other than this one."""
    chosen = checked_password(new, field="new")
    account = await own_account(actor, stores)
    session = await sessions.find_session(stores.database, stores.clock, session_token)
    if session is None or session.person.email != account.email:
        raise Forbidden("This session has ended. Sign in again.")
    await require_unguessable(stores, chosen, email=account.email, field="new")
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
    """Set the password and delete all links and tickets, within a transaction that holds the person's lock."""
    await transaction.run(_SET, person_id=account.person_id, password_hash=password_hash)
    await transaction.run(_DELETE_LINKS, person_id=account.person_id)
    await delete_tickets(transaction, account.person_id)
    await trail.record(transaction, actor, "person.password", account.email, at_ms=now_ms, by=by)


async def with_current_hash(stores: StaffStores, account: Account, password: str) -> Account:
    """Return the account with its password hashed by this release's parameters; `password` was just verified."""
    normalized = normalized_password(password)
    if account.password_hash is None or normalized is None or not stores.hashing.is_outdated(account.password_hash):
        return account
    with suppress(RateLimited):  # the next sign-in will do
        password_hash = await stores.hashing.hash(normalized)
        was = account.password_hash

        async def replace(transaction: Transaction) -> int:
            return await transaction.run(_REHASH, person_id=account.person_id, password_hash=password_hash, was=was)

        if await stores.database.write(replace):
            return msgspec.structs.replace(account, password_hash=password_hash)
    return account
