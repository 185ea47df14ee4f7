"""Token pairs: issued, looked up, and deleted when they have expired. Source: docs/interface.md sections 3 and D2."""

import enum
from collections.abc import Sequence
from typing import Any

import msgspec

from stoplist import ids
from stoplist.clock import DAY_MS, Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import StoreUnavailable
from stoplist.oauth.model import ACCESS_TTL_S, REFRESH_TTL_S, TOKEN_PER_MINUTE, Client, TokenPair

_QUERIES = load_queries(__package__)
_FIND = _QUERIES["find_refresh_token"]
_ISSUE = _QUERIES["issue_pair"]
_ROTATE = _QUERIES["rotate_pair"]
_MAY_DELETE_EXPIRED = _QUERIES["may_delete_expired"]
_DELETE_EXPIRED = _QUERIES["delete_expired_pairs"]
EXPIRED_BATCH_ROWS = 500


class TokenState(enum.Enum):
    """The states of a refresh token (docs/interface.md section 3.1)."""

    ACTIVE = "active"
    ROTATED = "rotated"
    REVOKED = "revoked"
    EXPIRED = "expired"


class RefreshToken(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh token at one moment, with what is needed of its client.

    `chain_started_ms` is the issue of the first pair of its chain; `needs_secret`: its client refreshes with its secret
    alone.
    """

    client_id: str
    state: TokenState
    epoch: int
    token_per_minute: int
    chain_started_ms: int
    needs_secret: bool

    @property
    def is_live(self) -> bool:
        """Return whether it is unexpired and of the current epoch; then it proves its credential (section D8)."""
        return self.state in (TokenState.ACTIVE, TokenState.ROTATED)


def state_of(*, is_rotated: bool, is_revoked: bool, expires_ms: int, now_ms: int) -> TokenState:
    """Return the state that these facts amount to.

    Expiry comes first, and a revoked token is never a reuse: neither raises the alarm.
    """
    if now_ms >= expires_ms:
        return TokenState.EXPIRED
    if is_revoked:
        return TokenState.REVOKED
    return TokenState.ROTATED if is_rotated else TokenState.ACTIVE


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh token that is presented, as it was found, with or without the secret of its client."""

    refresh_token: str
    found: RefreshToken
    has_secret: bool = False
    chain_days: int = 0


def chain_left_s(chain_started_ms: int, now_ms: int, *, chain_days: int) -> int:
    """Return the whole seconds that a chain may still last, at most the lifetime of a refresh token.

    Without an end (`chain_days` is 0) that is the lifetime. Not positive: the chain has ended.
    """
    if chain_days == 0:
        return REFRESH_TTL_S
    return min(REFRESH_TTL_S, (chain_started_ms + chain_days * DAY_MS - now_ms) // 1000)


async def issue_pair(database: Database, clock: Clock, client: Client, *, chain_days: int = 0) -> TokenPair | None:
    """Store and return a new pair; None if the client was revoked or deactivated since `client` was read.

    The pair begins a chain of refreshes, which ends after `chain_days`; 0: it has no end.
    """
    now_ms = clock.now_ms()
    pair = _new_pair(chain_left_s(now_ms, now_ms, chain_days=chain_days))
    row = await database.write_one(
        _ISSUE,
        client_id=client.client_id,
        epoch=client.epoch,
        **_pair_parameters(pair, now_ms, chain_started_ms=now_ms),
    )
    return pair if row else None


async def rotate_pair(database: Database, clock: Clock, rotation: Rotation) -> TokenPair | None:
    """Rotate an active refresh token and return its successors, in one statement; None if it is not active.

    Also None if its client has begun to need the secret. No successor outlives the chain.
    """
    now_ms = clock.now_ms()
    left_s = chain_left_s(rotation.found.chain_started_ms, now_ms, chain_days=rotation.chain_days)
    if left_s <= 0:
        return None
    pair = _new_pair(left_s)
    try:
        row = await database.write_one(_ROTATE, **_rotation_parameters(pair, rotation, now_ms))
    except StoreUnavailable as failure:
        if not failure.is_uncertain:
            raise
        return await _rotate_again(database, pair, rotation, now_ms)
    return pair if row else None


async def _rotate_again(database: Database, lost: TokenPair, rotation: Rotation, now_ms: int) -> TokenPair | None:
    """Settle a rotation whose answer was lost: it may be stored, may be running, or may never have arrived.

    Sent again with a pair of its own (hashes are unique), the statement waits for the first one. If the first one
    succeeded, the second inserts nothing, and the lost pair is found. If this fails too, the outcome is unknown, and a
    retry by the client could raise the alarm: the error text says not to retry.
    """
    pair = _new_pair(lost.refresh_expires_in)
    try:
        if await database.write_one(_ROTATE, **_rotation_parameters(pair, rotation, now_ms)):
            return pair
        stored = await database.rows(_FIND, ids.hash_secret(lost.refresh_token))
    except StoreUnavailable as failure:
        raise StoreUnavailable(
            "The database failed while the refresh token was being used: do not send it again, "
            "get a new pair with client_credentials.",
            retry_after_s=failure.retry_after_s,
        ) from failure
    return lost if stored else None


async def is_still_unused(transaction: Transaction, rotation: Rotation, now_ms: int) -> bool:
    """Return whether the token could be rotated now; the transaction must then be rolled back.

    The rotation itself is tried, so that the answer waits for a rotation that has not committed yet.
    """
    return await transaction.one(_ROTATE, **_rotation_parameters(_new_pair(), rotation, now_ms)) is not None


async def find_refresh_token(
    database: Database, refresh_token: str, now_ms: int, *, chain_days: int = 0
) -> RefreshToken | None:
    """Return the refresh token in its present state; None if it is unknown. A wrong checksum saves the look-up."""
    if not ids.is_well_formed(refresh_token, ids.REFRESH_TOKEN):
        return None
    rows = await database.rows(_FIND, ids.hash_secret(refresh_token))
    return _refresh_token(rows[0], now_ms, chain_days) if rows else None


async def delete_expired(database: Database, now_ms: int) -> int:
    """Delete a batch of the rows whose refresh token has expired; return the number deleted.

    Deletes nothing while another process is deleting.
    """

    async def delete_batch(transaction: Transaction) -> int:
        row = await transaction.one(_MAY_DELETE_EXPIRED)
        if row is None or not row["may"]:
            return 0
        return await transaction.run(_DELETE_EXPIRED, most=EXPIRED_BATCH_ROWS, now_ms=now_ms)

    return await database.write(delete_batch)


def _refresh_token(row: Sequence[Any], now_ms: int, chain_days: int) -> RefreshToken:
    client_id, expires_ms, started_ms, epoch, current_epoch, is_active, token_per_minute, needs_secret, is_rotated = row
    chain_started_ms = expires_ms - REFRESH_TTL_S * 1000 if started_ms is None else started_ms
    if chain_left_s(chain_started_ms, now_ms, chain_days=chain_days) <= 0:
        expires_ms = min(expires_ms, now_ms)
    return RefreshToken(
        client_id=client_id,
        state=state_of(
            is_rotated=bool(is_rotated),
            # The epoch is compared, not the time: two refreshes within one second must not look alike.
            is_revoked=epoch != current_epoch or not is_active,
            expires_ms=expires_ms,
            now_ms=now_ms,
        ),
        epoch=epoch,
        token_per_minute=token_per_minute or TOKEN_PER_MINUTE,
        chain_started_ms=chain_started_ms,
        needs_secret=bool(needs_secret),
    )


def _new_pair(left_s: int = REFRESH_TTL_S) -> TokenPair:
    """Return a pair of which neither token lives longer than `left_s`."""
    access_token, refresh_token = ids.new_secrets(ids.ACCESS_TOKEN, ids.REFRESH_TOKEN)
    return TokenPair(
        access_token=access_token,
        expires_in=min(ACCESS_TTL_S, left_s),
        refresh_token=refresh_token,
        refresh_expires_in=left_s,
    )


def _pair_parameters(pair: TokenPair, now_ms: int, *, chain_started_ms: int) -> dict[str, bytes | int]:
    return {
        "access_hash": ids.hash_secret(pair.access_token),
        "refresh_hash": ids.hash_secret(pair.refresh_token),
        "chain_started_ms": chain_started_ms,
        "access_expires_ms": now_ms + pair.expires_in * 1000,
        "refresh_expires_ms": now_ms + pair.refresh_expires_in * 1000,
    }


def _rotation_parameters(pair: TokenPair, rotation: Rotation, now_ms: int) -> dict[str, bytes | int]:
    return {
        **_pair_parameters(pair, now_ms, chain_started_ms=rotation.found.chain_started_ms),
        "presented_hash": ids.hash_secret(rotation.refresh_token),
        "now_ms": now_ms,
        "has_secret": int(rotation.has_secret),
    }
