"""Completes the states of feeds that an older program left without one, and compares stored states with the records.

Changes carry the state of a feed on by themselves. Source: docs/interface.md section D14, State of a feed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stoplist.db import Database, Row, Transaction
from stoplist.db.query import Query, load_queries
from stoplist.organizations.target import ALL_GROUPS, GROUP_NUMBERS, lost_group
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.erased import stated_address
from stoplist.unsubscribes.feed_lock import lock_feed, set_state
from stoplist.unsubscribes.feed_state import EMPTY, FeedState, StateRecord, extended_state, stored_state

_QUERIES = load_queries("stoplist.unsubscribes")
_AFTER = _QUERIES["state_records_after"]
_FEED = _QUERIES["feed"]
_FEEDS = _QUERIES["feeds"]
_INCOMPLETE = _QUERIES["incomplete_feeds"]

RECORDS_PER_STEP = 2_000
PAUSE_S = 0.05
_NEVER = -1
_ATTEMPTS = 3

OnStep = Callable[[int], None]
"""Called with the number of records that were just read."""


class StateSource(Protocol):
    """Reads rows: a database, or a file that is inspected."""

    async def one(self, query: Query, **values: Any) -> Row | None: ...
    async def all(self, query: Query, **values: Any) -> list[Row]: ...


class Comparison(NamedTuple):
    """The feeds whose stored state was compared with their records.

    `differing` are the numbers of feeds whose state is wrong. `open` is the number of feeds that have no complete
    state, or changed whenever they were read.
    """

    compared: int
    differing: list[int]
    open: int


async def complete_states(database: Database, *, pause_s: float = PAUSE_S, on_step: OnStep | None = None) -> None:
    """Complete the state of each feed that lacks one, in steps of RECORDS_PER_STEP records behind the feed's lock.

    May run in several processes at once. Gives a feed up for now if an older program writes to it meanwhile.
    StoreUnavailable if a record is of a group that a restore has lost.
    """
    for feed in await database.all(_INCOMPLETE):
        seq = _NEVER
        while True:
            step = await _extend(database, feed["feed_id"], feed["organization_id"])
            if on_step is not None:
                on_step(step.records)
            if step.is_complete or step.seq <= seq:
                break
            seq = step.seq
            await asyncio.sleep(pause_s)


async def drop_state(database: Database, feed_id: int) -> None:
    """Let the state of a feed be computed anew: `complete_states` does so."""

    async def drop(transaction: Transaction) -> None:
        await lock_feed(transaction, feed_id, seen_writes=_NEVER, changes=0, most=0, state=EMPTY, clock=None)
        await set_state(transaction, feed_id, EMPTY)

    await database.write(drop, queue_key=feed_id)


async def compare_states(source: StateSource) -> Comparison:
    """Recompute the state of every feed, page by page, and compare it with the stored one.

    StoreUnavailable if a record is of a group that a restore has lost.
    """
    compared, differing, left_open = 0, [], 0
    for feed in await source.all(_FEEDS):
        is_equal = await _is_state_right(source, feed["feed_id"], feed["organization_id"])
        if is_equal is None:
            left_open += 1
            continue
        compared += 1
        if not is_equal:
            differing.append(feed["feed_id"])
    return Comparison(compared, differing, left_open)


class _Step(NamedTuple):
    seq: int
    records: int
    is_complete: bool


async def _extend(database: Database, feed_id: int, organization_id: int) -> _Step:
    """Take the next records into the state of a feed, or begin again if an older program has written to it.

    StoreUnavailable if a record is of a group that a restore has lost.
    """

    async def extend(transaction: Transaction) -> _Step | None:
        locked = await lock_feed(transaction, feed_id, seen_writes=_NEVER, changes=0, most=0, state=EMPTY, clock=None)
        rows = await _rows_after(transaction.all, feed_id, locked.state.seq)
        if not groups.keys() >= {row["group_no"] for row in rows}:
            return None
        is_last = len(rows) < RECORDS_PER_STEP
        seq = locked.head_seq if is_last else rows[-1]["seq"]
        await set_state(transaction, feed_id, extended_state(locked.state, seq, _state_records(rows, groups)))
        return _Step(seq, len(rows), is_last)

    for _ in range(_ATTEMPTS):
        groups = await _group_ids(database, organization_id)
        step = await database.write(extend, queue_key=feed_id, rows=RECORDS_PER_STEP)
        if step is not None:  # else a group was created after its number was looked up
            return step
    raise lost_group()


async def _is_state_right(source: StateSource, feed_id: int, organization_id: int) -> bool | None:
    """Return whether the state is that of the records; None if it is incomplete, or the feed changes all the time."""
    for _ in range(_ATTEMPTS):
        before = await _head_and_state(source, feed_id)
        computed = EMPTY
        while computed.seq < before.seq:
            rows = await _rows_after(source.all, feed_id, computed.seq)
            groups = await _group_ids(source, organization_id)
            seq = rows[-1]["seq"] if len(rows) == RECORDS_PER_STEP else before.seq
            computed = extended_state(computed, seq, _state_records(rows, groups))
            await yield_to_loop()
        if await _head_and_state(source, feed_id) == before:
            return computed == before.state if before.state.seq == before.seq else None
    return None


class _HeadAndState(NamedTuple):
    seq: int
    state: FeedState


async def _head_and_state(source: StateSource, feed_id: int) -> _HeadAndState:
    row = await source.one(_FEED, feed_id=feed_id)
    return (
        _HeadAndState(0, EMPTY)
        if row is None
        else _HeadAndState(row["head_seq"], stored_state(row, head_seq=row["head_seq"]))
    )


async def _rows_after(read: Callable[..., Awaitable[list[Row]]], feed_id: int, after: int) -> list[Row]:
    return await read(_AFTER, feed_id=feed_id, after=after, most=RECORDS_PER_STEP)


async def _group_ids(source: StateSource, organization_id: int) -> dict[int, str | None]:
    """Return the `group_id` of each number of the organization; None for all groups."""
    rows = await source.all(GROUP_NUMBERS, organization_id=organization_id)
    return {ALL_GROUPS: None} | {row["group_no"]: row["group_id"] for row in rows}


def _state_records(rows: Sequence[Row], groups: Mapping[int, str | None]) -> list[StateRecord]:
    if not groups.keys() >= {row["group_no"] for row in rows}:
        raise lost_group()
    return [
        (row["id"], groups[row["group_no"]], stated_address(row["address"]), row["status"], row["seq"]) for row in rows
    ]
