"""Token pairs: issued, looked up, and deleted when they have expired. Source: docs/interface.md sections 3 and D2."""

import enum

import msgspec

from stoplist import ids
from stoplist.clock import Clock
from stoplist.db import Database, Row, Transaction
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


class State(enum.Enum):
    """The states of a refresh token (docs/interface.md section 3.1)."""

    ACTIVE = "active"
    ROTATED = "rotated"
    REVOKED = "revoked"
    EXPIRED = "expired"


class RefreshToken(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh token at one moment, with what is needed of its client."""

    client_id: str
    state: State
    epoch: int
    token_per_minute: int

    @property
    def is_live(self) -> bool:
        """Return whether it is unexpired and of the current epoch; then it proves its credential (section D8)."""
        return self.state in (State.ACTIVE, State.ROTATED)


def state_of(*, is_rotated: bool, is_revoked: bool, expires_ms: int, now_ms: int) -> State:
    """Return the state that these facts amount to.

    Expiry comes first, and a revoked token is never a reuse: neither raises the alarm.
    """
    if now_ms >= expires_ms:
        return State.EXPIRED
    if is_revoked:
        return State.REVOKED
    return State.ROTATED if is_rotated else State.ACTIVE


async def issue_pair(database: Database, clock: Clock, client: Client) -> TokenPair | None:
    """Store and return a new pair; None if the client was revoked or deactivated since `client` was read."""
    pair = _new_pair()
    row = await database.write_one(
        _ISSUE, client_id=client.client_id, epoch=client.epoch, **_pair_parameters(pair, clock.now_ms())
    )
    return pair if row else None


async def rotate_pair(database: Database, clock: Clock, refresh_token: str) -> TokenPair | None:
    """Rotate an active refresh token and return its successors, in one statement; None if it is not active."""
    pair, now_ms = _new_pair(), clock.now_ms()
    try:
        row = await database.write_one(_ROTATE, **_rotation_parameters(pair, refresh_token, now_ms))
    except StoreUnavailable as failure:
        if not failure.is_uncertain:
            raise
        return await _rotate_again(database, pair, refresh_token, now_ms)
    return pair if row else None


async def _rotate_again(database: Database, lost: TokenPair, refresh_token: str, now_ms: int) -> TokenPair | None:
    """Settle a rotation whose answer was lost: it may be stored, may be running, or may never have arrived.

    Sent again with a pair of its own (hashes are unique), the statement waits for the first one. If the first one
    succeeded, the second inserts nothing, and the lost pair is found. If this fails too, the outcome is unknown, and a
    retry by the client could raise the alarm: the error text says not to retry.
    """
    pair = _new_pair()
    try:
        if await database.write_one(_ROTATE, **_rotation_parameters(pair, refresh_token, now_ms)):
            return pair
        stored = await database.one(_FIND, refresh_hash=ids.hash_secret(lost.refresh_token))
    except StoreUnavailable as failure:
        raise StoreUnavailable(
            "The database failed while the refresh token was being used: do not send it again, "
            "get a new pair with client_credentials.",
            retry_after_s=failure.retry_after_s,
        ) from failure
    return lost if stored else None


async def is_still_unused(transaction: Transaction, refresh_token: str, now_ms: int) -> bool:
    """Return whether the token could be rotated now; the transaction must then be rolled back.

    The rotation itself is tried, so that the answer waits for a rotation that has not committed yet.
    """
    return await transaction.one(_ROTATE, **_rotation_parameters(_new_pair(), refresh_token, now_ms)) is not None


async def find_refresh_token(source: Database | Transaction, refresh_token: str, now_ms: int) -> RefreshToken | None:
    """Return the refresh token in its present state; None if it is unknown. A wrong checksum saves the look-up."""
    if not ids.is_well_formed(refresh_token, ids.REFRESH_TOKEN):
        return None
    row = await source.one(_FIND, refresh_hash=ids.hash_secret(refresh_token))
    return row and _refresh_token(row, now_ms)


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


def _refresh_token(row: Row, now_ms: int) -> RefreshToken:
    return RefreshToken(
        client_id=row["client_id"],
        state=state_of(
            is_rotated=bool(row["is_rotated"]),
            # The epoch is compared, not the time: two refreshes within one second must not look alike.
            is_revoked=row["epoch"] != row["current_epoch"] or not row["is_active"],
            expires_ms=row["refresh_expires_ms"],
            now_ms=now_ms,
        ),
        epoch=row["epoch"],
        token_per_minute=row["token_per_minute"] or TOKEN_PER_MINUTE,
    )


def _new_pair() -> TokenPair:
    return TokenPair(access_token=ids.new_secret(ids.ACCESS_TOKEN), refresh_token=ids.new_secret(ids.REFRESH_TOKEN))


def _pair_parameters(pair: TokenPair, now_ms: int) -> dict[str, bytes | int]:
    return {
        "access_hash": ids.hash_secret(pair.access_token),
        "refresh_hash": ids.hash_secret(pair.refresh_token),
        "access_expires_ms": now_ms + ACCESS_TTL_S * 1000,
        "refresh_expires_ms": now_ms + REFRESH_TTL_S * 1000,
    }


def _rotation_parameters(pair: TokenPair, presented: str, now_ms: int) -> dict[str, bytes | int]:
    return {**_pair_parameters(pair, now_ms), "presented_hash": ids.hash_secret(presented), "now_ms": now_ms}
