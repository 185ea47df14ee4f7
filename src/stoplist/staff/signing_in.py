"""Signing in: a password, then a code if two-step sign-in is on. Every success begins a new session.

No answer reveals whether the account exists, is disabled or has a password: the text is the same for all, after the
same work. Source: docs/interface.md section D11.
"""

import msgspec

from stoplist.actor import Actor
from stoplist.db import Transaction
from stoplist.errors import Refused
from stoplist.staff import attempts, passwords, sessions, tickets, two_step
from stoplist.staff.model import SecondStep, SignedIn, StaffStores, canonical_or_none
from stoplist.staff.store import Account, find_account, lock_account

NOT_RECOGNISED = "The e-mail address or password is wrong, or the account cannot be used. Check both and try again."
SIGN_IN_AGAIN = "Too much time has passed since you entered the password. Sign in again."


async def sign_in(
    actor: Actor, stores: StaffStores, *, email: str, password: str, user_agent: str
) -> SignedIn | SecondStep:
    """Begin a session by password, or return a ticket for the second step. Otherwise Refused or RateLimited."""
    address = canonical_or_none(email)
    attempt = await attempts.begin(stores, email if address is None else address, source=actor.source_ip)
    found = None if address is None else await find_account(stores.database, address)
    is_correct = await passwords.is_correct(stores, attempt, found, password)
    if found is None or not is_correct:
        await attempts.record_failure(
            actor, stores, attempt, email=None if found is None else found.email, what="password"
        )
        raise Refused(NOT_RECOGNISED)
    account, now_ms = await passwords.with_current_hash(stores, found, password), stores.clock.now_ms()

    async def enter(transaction: Transaction) -> SignedIn | SecondStep:
        held = await _lock_enabled_account(transaction, account)
        if held is None or held.password_hash is None or held.password_hash != account.password_hash:
            raise Refused(NOT_RECOGNISED)
        await attempts.forget(transaction, attempt)
        if held.totp_secret is not None:
            return SecondStep(await tickets.add_ticket(transaction, held.person_id, now_ms))
        return await sessions.begin(transaction, _acting_as(actor, held), held, user_agent, now_ms, by="password")

    return await stores.database.write(enter)


async def second_step(actor: Actor, stores: StaffStores, *, ticket: str, code: str, user_agent: str) -> SignedIn:
    """Begin a session by a code of the app or a recovery code. Otherwise Refused (field `code`) or RateLimited.

    A ticket that is invalid, used, older than 5 minutes or for a former password is Refused without a field: the
    person has to sign in again.
    """
    now_ms = stores.clock.now_ms()
    account = await tickets.account_of_ticket(stores.database, ticket, now_ms)
    if account is None:
        raise Refused(SIGN_IN_AGAIN)
    attempt = await attempts.begin(stores, account.email, source=actor.source_ip)
    # Six digits would not withstand guesses from many sources, so the codes of an account are also counted across all
    # sources. Only those who know the password can use this limit up.
    across_sources = await attempts.begin(stores, account.email, source=f"codes of {account.email}")

    async def enter(transaction: Transaction) -> SignedIn | None:
        held = await _lock_enabled_account(transaction, account)
        # Looked up again: a new password, and another use of this ticket, delete it under the lock.
        if held is None or await tickets.account_of_ticket(transaction, ticket, now_ms) is None:
            raise Refused(SIGN_IN_AGAIN)
        kind = await two_step.use_code(transaction, stores, held, code, now_ms)
        if kind is None:
            return None
        await tickets.use_ticket(transaction, ticket)
        await attempts.forget(transaction, attempt)
        await attempts.forget(transaction, across_sources)
        return await sessions.begin(transaction, _acting_as(actor, held), held, user_agent, now_ms, by=kind)

    signed_in = await stores.database.write(enter)
    if signed_in is None:
        await attempts.record_failure(actor, stores, attempt, email=account.email, what="code")
        raise Refused(two_step.WRONG_CODE, field="code")
    return signed_in


async def _lock_enabled_account(transaction: Transaction, account: Account) -> Account | None:
    """Lock the account and return its current state, or None if it has been disabled meanwhile."""
    held = await lock_account(transaction, account.email)
    return None if held.is_disabled else held


def _acting_as(actor: Actor, account: Account) -> Actor:
    return msgspec.structs.replace(actor, id=account.email)
