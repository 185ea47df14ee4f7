"""The lock of a feed, which also takes the numbers and the time of a change and carries the state of the feed on.

Source: docs/interface.md sections D6 and D14. Reasons: docs/decisions/0009-feeds.md and 0024-state-of-a-feed.md.
"""

from typing import NamedTuple

from stoplist.clock import Clock
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.unsubscribes.erased import key_bytes
from stoplist.unsubscribes.feed_state import FeedState, stored_state

_QUERIES = load_queries(__package__)
_LOCK_FEED = _QUERIES["lock_feed"]
_SET_LAST_RECORDED = _QUERIES["set_last_recorded"]
_SET_STATE = _QUERIES["set_state"]

# A lock that was waited for longer gets the time at which it was obtained, at the cost of a statement.
_MAX_WAIT_MS = 20


class LockedFeed(NamedTuple):
    """A feed behind its lock: the last number of the change, and whether nobody wrote since the feed was seen.

    If so, `state` is the one that was given. Otherwise it is the state before this change. `recorded_ms` is the time of
    the change, at least that of the change before. `erasing_key` as for `Feed`.
    """

    head_seq: int
    recorded_ms: int
    is_as_seen: bool
    state: FeedState
    erasing_key: bytes | None = None


async def lock_feed(
    transaction: Transaction,
    feed_id: int,
    *,
    seen_writes: int,
    changes: int,
    most: int,
    state: FeedState,
    clock: Clock | None,
) -> LockedFeed:
    """Lock the feed for a change. If nobody wrote since it was seen, take `changes` numbers and store `state`.

    Otherwise take `most` numbers; the caller then stores the state with `set_state` if anything changes. Pass no clock
    for a change of no record: the time of the feed stays.
    """
    row = await transaction.one(
        _LOCK_FEED,
        feed_id=feed_id,
        seen=seen_writes,
        changes=changes,
        most=most,
        now_ms=_now_ms(clock),
        **_values(state),
    )
    if row is None:
        raise RuntimeError("the feed's row is gone")
    recorded_ms = await _recorded_ms(transaction, feed_id, row["last_recorded_ms"], now_ms=_now_ms(clock))
    key = key_bytes(row["digest_key"]) if row["has_erased"] else None
    if row["writes"] == seen_writes + 1:
        return LockedFeed(row["head_seq"], recorded_ms, is_as_seen=True, state=state, erasing_key=key)
    before = stored_state(row, head_seq=row["head_seq"] - most)
    return LockedFeed(row["head_seq"], recorded_ms, is_as_seen=False, state=before, erasing_key=key)


async def set_state(transaction: Transaction, feed_id: int, state: FeedState) -> None:
    """Set the state of a locked feed."""
    await transaction.run(_SET_STATE, feed_id=feed_id, **_values(state))


async def _recorded_ms(transaction: Transaction, feed_id: int, last_recorded_ms: int, *, now_ms: int) -> int:
    """Return the time of a change, given the time to which its lock has raised the feed's."""
    if now_ms <= last_recorded_ms + _MAX_WAIT_MS:
        return last_recorded_ms
    await transaction.run(_SET_LAST_RECORDED, feed_id=feed_id, recorded_ms=now_ms)
    return now_ms


def _now_ms(clock: Clock | None) -> int:
    return 0 if clock is None else clock.now_ms()


def _values(state: FeedState) -> dict[str, object]:
    return {"state_seq": state.seq, "state_records": state.records, "state_digest": state.text}
