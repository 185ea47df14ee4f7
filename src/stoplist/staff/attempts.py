"""Failed attempts to sign in, counted by account and source: too many close the door to that source.

They are counted in the database, so that all processes agree. An attempt takes its place before anything is looked
into, and gives it back when it succeeds: so there are never more wrong guesses than the limit, however many come at
once. Source: docs/interface.md section D11.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import RateLimited
from stoplist.source import source_key
from stoplist.staff.lifetimes import ATTEMPT_MS
from stoplist.staff.model import StaffStores

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_attempt"]
_FORGET = _QUERIES["forget_attempt"]
_LOCK_SOURCE = _QUERIES["lock_source"]
_RECENT = _QUERIES["recent_attempts"]
_SETTLE = _QUERIES["settle_attempt"]

T = TypeVar("T")

MOST_OF_AN_ACCOUNT = 10
MOST_OF_A_SOURCE = 100


class Attempt(NamedTuple):
    """One attempt that is being looked into."""

    attempt_id: str
    source: str


class Earlier(NamedTuple):
    """When an attempt was made, and for which account."""

    account_hash: bytes
    at_ms: int


def locked_until_ms(newest_first: Sequence[Earlier], account_hash: bytes) -> int:
    """From when on the source may try this account; 0: it may now. `newest_first` are its attempts in the window."""
    of_account = [attempt.at_ms for attempt in newest_first if attempt.account_hash == account_hash]
    of_source = [attempt.at_ms for attempt in newest_first]
    return max(_locked_until(of_account, MOST_OF_AN_ACCOUNT), _locked_until(of_source, MOST_OF_A_SOURCE))


async def begin(stores: StaffStores, account: str, *, source: str | None) -> Attempt:
    """An attempt for this account, known or not, has taken its place; RateLimited where there is none.

    `source` is the address that it comes from, or another text under which attempts are counted together.
    """
    now_ms = stores.clock.now_ms()
    account_hash, key = ids.hash_secret(account), source_key(source or "")
    # First without a lock: whoever goes on knocking at a closed door holds nobody up, and writes nothing.
    _refuse_locked(await _recent(stores.database, key, now_ms), account_hash, now_ms)
    attempt = Attempt(ids.new_id(""), key)

    async def take_place(transaction: Transaction) -> None:
        await transaction.one(_LOCK_SOURCE, lock=_lock_of(key))
        _refuse_locked(await _recent(transaction, key, now_ms), account_hash, now_ms)
        await transaction.run(_ADD, attempt_id=attempt.attempt_id, source=key, account_hash=account_hash, at_ms=now_ms)

    await stores.database.write(take_place)
    return attempt


async def with_attempt(stores: StaffStores, attempt: Attempt, look: Callable[[], Awaitable[T]]) -> T:
    """What `look` says; where it comes to nothing because too many wait, the attempt does not count."""
    try:
        return await look()
    except RateLimited:

        async def give_back(transaction: Transaction) -> None:
            await forget(transaction, attempt)

        await stores.database.write(give_back)
        raise


async def forget(transaction: Transaction, attempt: Attempt) -> None:
    """Within the transaction of what succeeded: the attempt does not count."""
    await transaction.run(_FORGET, attempt_id=attempt.attempt_id)


async def failed(actor: Actor, stores: StaffStores, attempt: Attempt, *, email: str | None, what: str) -> None:
    """The attempt counts from now on; the audit tells of it where there is such an account (`email`)."""
    now_ms = stores.clock.now_ms()

    async def settle(transaction: Transaction) -> None:
        await transaction.run(_SETTLE, attempt_id=attempt.attempt_id, at_ms=now_ms)
        if email is not None:
            await trail.record(transaction, actor, "person.sign_in_failed", email, at_ms=now_ms, what=what)
        else:
            # As many statements, and a commit either way: time must not tell whether there is such an account.
            await _recent(transaction, attempt.source, now_ms)

    await stores.database.write(settle)


async def _recent(source: Database | Transaction, key: str, now_ms: int) -> list[Earlier]:
    rows = await source.all(_RECENT, source=key, since_ms=now_ms - ATTEMPT_MS, most=MOST_OF_A_SOURCE)
    return [Earlier(row["account_hash"], row["at_ms"]) for row in rows]


def _refuse_locked(newest_first: Sequence[Earlier], account_hash: bytes, now_ms: int) -> None:
    locked_ms = locked_until_ms(newest_first, account_hash)
    if locked_ms > now_ms:
        wait_s = -(-(locked_ms - now_ms) // 1000)
        wait_min = -(-wait_s // 60)
        wait = "a minute" if wait_min == 1 else f"{wait_min} minutes"
        raise RateLimited(f"Too many failed attempts to sign in: try again in {wait}.", retry_after_s=wait_s)


def _locked_until(newest_first: Sequence[int], most: int) -> int:
    return newest_first[most - 1] + ATTEMPT_MS if len(newest_first) >= most else 0


def _lock_of(source: str) -> int:
    return int.from_bytes(ids.hash_secret(f"sign-in attempts|{source}")[:8], signed=True)
