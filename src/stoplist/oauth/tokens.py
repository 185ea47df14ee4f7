"""Token pairs: issued, looked up, deleted when they have expired. Source: docs/interface.md sections 3 and D2."""

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
    """A refresh token as it stood at one moment, with what is needed of its client."""

    client_id: str
    state: State
    epoch: int
    token_per_minute: int

    @property
    def is_live(self) -> bool:
        """Unexpired and of the current epoch, rotated or not: it proves its credential (section D8)."""
        return self.state in (State.ACTIVE, State.ROTATED)


def state_of(*, is_rotated: bool, is_revoked: bool, expires_ms: int, now_ms: int) -> State:
    """Which state the facts amount to. Expiry comes first and a revoked token is never a reuse: neither alarms."""
    if now_ms >= expires_ms:
        return State.EXPIRED
    if is_revoked:
        return State.REVOKED
    return State.ROTATED if is_rotated else State.ACTIVE


async def issue_pair(database: Database, clock: Clock, client: Client) -> TokenPair | None:
    """A new pair, durably stored; None if the client was revoked or deactivated since `client` was read."""
    pair = _new_pair()
    row = await database.write_one(
        _ISSUE, client_id=client.client_id, epoch=client.epoch, **_stored(pair, clock.now_ms())
    )
    return pair if row else None


async def rotate_pair(database: Database, clock: Clock, refresh_token: str) -> TokenPair | None:
    """The successors of an active refresh token, which is rotated by the same statement; None if it is not active."""
    pair, now_ms = _new_pair(), clock.now_ms()
    try:
        row = await database.write_one(_ROTATE, **_rotation(pair, refresh_token, now_ms))
    except StoreUnavailable as failure:
        if not failure.is_uncertain:
            raise
        return await _rotate_again(database, pair, refresh_token, now_ms)
    return pair if row else None


async def _rotate_again(database: Database, lost: TokenPair, refresh_token: str, now_ms: int) -> TokenPair | None:
    """Settle a rotation whose answer was lost: it may be stored, may be under way, or may never have arrived.

    Sent once more, with a pair of its own since hashes are unique, it waits for the first one; if that made it, ours
    inserts nothing and the lost pair is found. When this fails too nobody knows, and a client that tries again could
    set off the alarm: the text says not to.
    """
    pair = _new_pair()
    try:
        if await database.write_one(_ROTATE, **_rotation(pair, refresh_token, now_ms)):
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
    """Whether the token could be rotated now; the transaction must then be rolled back.

    The rotation itself is tried, so that the answer waits for a rotation that has not committed yet.
    """
    return await transaction.one(_ROTATE, **_rotation(_new_pair(), refresh_token, now_ms)) is not None


async def find_refresh_token(source: Database | Transaction, refresh_token: str, now_ms: int) -> RefreshToken | None:
    """The refresh token as it stands; None if it is unknown. A wrong checksum spares the look-up."""
    if not ids.is_well_formed(refresh_token, ids.REFRESH_TOKEN):
        return None
    row = await source.one(_FIND, refresh_hash=ids.hash_secret(refresh_token))
    return row and _refresh_token(row, now_ms)


async def delete_expired(database: Database, now_ms: int) -> int:
    """Delete a bite of the rows whose refresh token has expired; returns how many went.

    None while another process is at it, which will come to the rest.
    """

    async def bite(transaction: Transaction) -> int:
        row = await transaction.one(_MAY_DELETE_EXPIRED)
        if row is None or not row["may"]:
            return 0
        return await transaction.run(_DELETE_EXPIRED, bite=EXPIRED_BATCH_ROWS, now_ms=now_ms)

    return await database.write(bite)


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


def _stored(pair: TokenPair, now_ms: int) -> dict[str, bytes | int]:
    return {
        "access_hash": ids.hash_secret(pair.access_token),
        "refresh_hash": ids.hash_secret(pair.refresh_token),
        "access_expires_ms": now_ms + ACCESS_TTL_S * 1000,
        "refresh_expires_ms": now_ms + REFRESH_TTL_S * 1000,
    }


def _rotation(pair: TokenPair, presented: str, now_ms: int) -> dict[str, bytes | int]:
    return {**_stored(pair, now_ms), "presented_hash": ids.hash_secret(presented), "now_ms": now_ms}
