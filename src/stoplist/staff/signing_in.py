"""Signing in: password, then a code where one is asked for. Every success begins a session of its own.

No answer tells whether there is such an account, whether its door is closed or whether it has a password: the same
text for all, after the same work. Source: docs/interface.md section D11.
"""

import msgspec

from stoplist.actor import Actor
from stoplist.db import Transaction
from stoplist.errors import Refused
from stoplist.staff import attempts, passwords, sessions, tickets, two_step
from stoplist.staff.model import SecondStep, SignedIn, StaffStores, canonical_or_none
from stoplist.staff.store import Account, find_account, find_account_by_id, lock_account

NOT_RECOGNISED = "E-mail address or password are not right, or the account cannot be used. Check both and try again."
BEGIN_ANEW = "Too much time has passed since the password: sign in anew."


async def sign_in(
    actor: Actor, stores: StaffStores, *, email: str, password: str, user_agent: str
) -> SignedIn | SecondStep:
    """Whoever acts is in as this person, or has a ticket for the second step; else Refused, or RateLimited."""
    address = canonical_or_none(email)
    attempt = await attempts.begin(stores, email if address is None else address, source=actor.source_ip)
    known = None if address is None else await find_account(stores.database, address)
    is_right = await passwords.is_right(stores, attempt, known, password)
    if known is None or not is_right:
        await attempts.failed(actor, stores, attempt, email=None if known is None else known.email, what="password")
        raise Refused(NOT_RECOGNISED)
    account, now_ms = await passwords.with_current_hash(stores, known, password), stores.clock.now_ms()

    async def enter(transaction: Transaction) -> SignedIn | SecondStep:
        held = await _held(transaction, account)
        if held is None or held.password_hash is None or held.password_hash != account.password_hash:
            raise Refused(NOT_RECOGNISED)
        await attempts.forget(transaction, attempt)
        if held.totp_secret is not None:
            return _second_step(stores, held.person_id, held.password_hash, now_ms)
        return await sessions.begin(transaction, _as(actor, held), held, user_agent, now_ms, by="password")

    return await stores.database.write(enter)


async def second_step(actor: Actor, stores: StaffStores, *, ticket: str, code: str, user_agent: str) -> SignedIn:
    """Whoever acts is in, with a code of the app or a recovery code; else Refused (field `code`), or RateLimited.

    A ticket that is none, is older than 5 minutes, or whose password is not the present one is Refused without a
    field: nothing but a new start helps.
    """
    now_ms = stores.clock.now_ms()
    account = await _account_of(stores, ticket, now_ms)
    attempt = await attempts.begin(stores, account.email, source=actor.source_ip)
    # Six digits would not stand up to guesses from many sources: all together are one more, for each account. Whoever
    # knows the password can close that door; nobody else comes to it.
    over_all = await attempts.begin(stores, account.email, source=f"codes of {account.email}")

    async def enter(transaction: Transaction) -> SignedIn | None:
        held = await _held(transaction, account)
        if held is None or held.totp_secret is None or held.password_hash != account.password_hash:
            raise Refused(BEGIN_ANEW)
        kind = await two_step.use_code(transaction, held, code, now_ms)
        if kind is None:
            return None
        await attempts.forget(transaction, attempt)
        await attempts.forget(transaction, over_all)
        return await sessions.begin(transaction, _as(actor, held), held, user_agent, now_ms, by=kind)

    signed_in = await stores.database.write(enter)
    if signed_in is None:
        await attempts.failed(actor, stores, attempt, email=account.email, what="code")
        raise Refused(two_step.WRONG_CODE, field="code")
    return signed_in


async def _account_of(stores: StaffStores, ticket: str, now_ms: int) -> Account:
    told = tickets.read_ticket(stores.secret_keys, ticket, now_ms=now_ms)
    account = None if told is None else await find_account_by_id(stores.database, told.person_id)
    if told is None or account is None or account.password_hash is None:
        raise Refused(BEGIN_ANEW)
    if tickets.mark_of(account.password_hash) != told.password_mark:
        raise Refused(BEGIN_ANEW)
    return account


async def _held(transaction: Transaction, account: Account) -> Account | None:
    """The account as it is now, held; None where the door has been closed meanwhile."""
    held = await lock_account(transaction, account.email)
    return None if held.is_disabled else held


def _as(actor: Actor, account: Account) -> Actor:
    return msgspec.structs.replace(actor, id=account.email)


def _second_step(stores: StaffStores, person_id: int, password_hash: str, now_ms: int) -> SecondStep:
    return SecondStep(
        tickets.make_ticket(stores.secret_keys, person_id=person_id, password_hash=password_hash, now_ms=now_ms)
    )
