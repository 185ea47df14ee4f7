"""Limits on failed sign-in attempts, counted by account and source address.

Attempts are counted in the database, so that all processes agree. An attempt is reserved before the password is
checked and forgotten when it succeeds, so concurrent guesses cannot exceed the limit.
Source: docs/interface.md section D11.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import RateLimited
from stoplist.source import SOURCES_PER_NETWORK, source_key, wider_source_key
from stoplist.staff.lifetimes import ATTEMPT_MS
from stoplist.staff.model import StaffStores

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_attempt"]
_FORGET = _QUERIES["forget_attempt"]
_LOCK_SOURCE = _QUERIES["lock_source"]
_RECENT = _QUERIES["recent_attempts"]
_SETTLE = _QUERIES["settle_attempt"]

T = TypeVar("T")

MAX_FAILURES_PER_ACCOUNT = 10
MAX_FAILURES_PER_SOURCE = 100


class _Scope(NamedTuple):
    """A source under which an attempt counts, in a row of its own. A /48 may fail as often as `sources` sources."""

    attempt_id: str
    source: str
    sources: int = 1


class Attempt(NamedTuple):
    """An attempt whose password or code is being checked: at its source and, for IPv6, at its /48."""

    scopes: tuple[_Scope, ...]


class PastAttempt(NamedTuple):
    """The time of an earlier attempt and the account that it was for."""

    account_hash: bytes
    at_ms: int


def locked_until_ms(newest_first: Sequence[PastAttempt], account_hash: bytes, *, sources: int = 1) -> int:
    """Return when the source may try this account again; 0 if it may now.

    `newest_first` holds all attempts of the source within the last `ATTEMPT_MS`; `sources`: as how many it counts.
    """
    of_account = [attempt.at_ms for attempt in newest_first if attempt.account_hash == account_hash]
    of_source = [attempt.at_ms for attempt in newest_first]
    return max(
        _locked_until(of_account, MAX_FAILURES_PER_ACCOUNT * sources),
        _locked_until(of_source, MAX_FAILURES_PER_SOURCE * sources),
    )


async def begin(stores: StaffStores, account: str, *, source: str | None) -> Attempt:
    """Reserve an attempt for this account, whether or not the account exists; RateLimited if none is left.

    `source` is the client's address, or another text under which attempts are counted together.
    """
    now_ms = stores.clock.now_ms()
    account_hash, attempt = ids.hash_secret(account), Attempt(_scopes(source or ""))
    # Checked first without a lock: further attempts on a locked account write nothing and delay nobody.
    for scope in attempt.scopes:
        _refuse_locked(await _recent(stores.database, scope, now_ms), account_hash, now_ms, scope)

    async def reserve(transaction: Transaction) -> None:
        for scope in attempt.scopes:
            await transaction.one(_LOCK_SOURCE, lock=_lock_number(scope.source))
            _refuse_locked(await _recent(transaction, scope, now_ms), account_hash, now_ms, scope)
        for scope in attempt.scopes:
            await transaction.run(
                _ADD, attempt_id=scope.attempt_id, source=scope.source, account_hash=account_hash, at_ms=now_ms
            )

    await stores.database.write(reserve)
    return attempt


async def with_attempt(stores: StaffStores, attempt: Attempt, check: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `check`; forget the attempt if `check` is RateLimited because the server is busy."""
    try:
        return await check()
    except RateLimited:

        async def release(transaction: Transaction) -> None:
            await forget(transaction, attempt)

        await stores.database.write(release)
        raise


async def forget(transaction: Transaction, attempt: Attempt) -> None:
    """Delete the attempt, in the transaction of what succeeded, so that it does not count."""
    for scope in attempt.scopes:
        await transaction.run(_FORGET, attempt_id=scope.attempt_id)


async def record_failure(actor: Actor, stores: StaffStores, attempt: Attempt, *, email: str | None, what: str) -> None:
    """Count the attempt from now on, and record it in the audit if the account exists (`email`)."""
    now_ms = stores.clock.now_ms()

    async def settle(transaction: Transaction) -> None:
        for scope in attempt.scopes:
            await transaction.run(_SETTLE, attempt_id=scope.attempt_id, at_ms=now_ms)
        if email is not None:
            await trail.record(transaction, actor, "person.sign_in_failed", email, at_ms=now_ms, what=what)
        else:
            # The same number of statements, and a commit, in either case: timing must not reveal which accounts exist.
            await _recent(transaction, attempt.scopes[0], now_ms)

    await stores.database.write(settle)


def _scopes(source: str) -> tuple[_Scope, ...]:
    key = source_key(source)
    network = wider_source_key(key)
    own = _Scope(ids.new_id(""), key)
    return (own,) if network is None else (own, _Scope(ids.new_id(""), network, SOURCES_PER_NETWORK))


async def _recent(source: Database | Transaction, scope: _Scope, now_ms: int) -> list[PastAttempt]:
    most = MAX_FAILURES_PER_SOURCE * scope.sources
    rows = await source.all(_RECENT, source=scope.source, since_ms=now_ms - ATTEMPT_MS, most=most)
    return [PastAttempt(row["account_hash"], row["at_ms"]) for row in rows]


def _refuse_locked(newest_first: Sequence[PastAttempt], account_hash: bytes, now_ms: int, scope: _Scope) -> None:
    locked_ms = locked_until_ms(newest_first, account_hash, sources=scope.sources)
    if locked_ms > now_ms:
        wait_s = -(-(locked_ms - now_ms) // 1000)
        wait_min = -(-wait_s // 60)
        wait = "a minute" if wait_min == 1 else f"{wait_min} minutes"
        raise RateLimited(f"Too many failed sign-in attempts. Try again in {wait}.", retry_after_s=wait_s)


def _locked_until(newest_first: Sequence[int], most: int) -> int:
    return newest_first[most - 1] + ATTEMPT_MS if len(newest_first) >= most else 0


def _lock_number(source: str) -> int:
    return int.from_bytes(ids.hash_secret(f"sign-in attempts|{source}")[:8], signed=True)
