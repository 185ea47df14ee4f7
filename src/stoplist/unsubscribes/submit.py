"""Submit a batch: read and decide without a lock, then lock, check for other writes, and write.

Source: docs/interface.md section D6; the order of errors: section D4. docs/decisions/0009-feeds.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from stoplist import ids
from stoplist.actor import Actor
from stoplist.clock import DAY_MS
from stoplist.db import HEAVY_ROWS, Database, Row, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import DefaultGroupNotConfigured, InsufficientScope, InvalidItem
from stoplist.organizations.target import Target, find_target
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.decision import BatchDecision, CurrentRecord
from stoplist.unsubscribes.feed import Feed, find_feed, open_feed
from stoplist.unsubscribes.items import Act, read_acts
from stoplist.unsubscribes.model import (
    ALL_GROUPS,
    CREATED,
    OUTRANKED,
    RESUBSCRIBED,
    UNCHANGED,
    UNSUBSCRIBED,
    UPDATED,
    BadItem,
    Item,
    ItemError,
    OptOutStores,
    RequestedTarget,
    Submission,
    sender_key,
)

_QUERIES = load_queries(__package__)
_ADD_RECORDS = _QUERIES["add_records"]
_COUNT_CHANGES = _QUERIES["count_changes"]
_GIVE_BACK_NUMBERS = _QUERIES["give_back_numbers"]
_KEEP_VERSIONS = _QUERIES["keep_versions"]
_LOCK_FEED = _QUERIES["lock_feed"]
_PUT_RECORDS = _QUERIES["put_records"]
_RECORD_SUBMISSION = _QUERIES["record_submission"]
_FIND_CURRENT_RECORDS = _QUERIES["current_records"]
_TOUCH_RECORDS = _QUERIES["touch_records"]

_PERMISSION_FOR = {UNSUBSCRIBED: "unsubscribe", RESUBSCRIBED: "resubscribe"}
_ITEMS_PER_READ = 2_500  # a quarter of the largest batch: its records are read while the next quarter is validated
_CURRENT_RECORDS = msgspec.json.Decoder(list[CurrentRecord])

BeforeCommit = Callable[[Transaction, str, BatchDecision], Awaitable[None]]
"""Writes more in the transaction of a submission, given the `submission_id` and the final decision."""


class _Batch(NamedTuple):
    """The validated acts to store, their target and their actor."""

    actor: Actor
    feed_id: int
    group_no: int
    acts: list[Act]
    received: int
    now_ms: int


async def submit(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    requested: RequestedTarget,
    items: Sequence[Item | BadItem],
    *,
    is_lenient: bool = False,
    is_minimal: bool = False,
) -> Submission:
    """Store every act of the batch, durably; may be repeated.

    Errors, in this order: InsufficientScope, UnauthorizedOrganization, DefaultGroupNotConfigured, InvalidItem (with
    `is_lenient` the good items are stored instead). StoreUnavailable at any time. A refused batch stores nothing.
    """
    _check_permissions(actor, items)
    target = await find_target(stores.database, actor.id, org_slug=requested.org_slug, group_id=requested.group_id)
    return await submit_to(
        actor,
        stores,
        channel,
        target,
        items,
        all_groups=requested.all_groups,
        is_lenient=is_lenient,
        is_minimal=is_minimal,
    )


async def submit_to(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    target: Target,
    items: Sequence[Item | BadItem],
    *,
    all_groups: bool = False,
    is_lenient: bool = False,
    is_minimal: bool = False,
    before_commit: BeforeCommit | None = None,
) -> Submission:
    """Do what `submit` does, for an actor and a target that the caller has authorized.

    `before_commit` runs in the same transaction, only if something is written.
    """
    group_no, group_id = _group(target, all_groups=all_groups)
    # The feed's `writes` is read before the records, so that the lock reveals any later write.
    feed = await find_feed(stores.database, target, channel)
    now_ms = stores.clock.now_ms()
    reader = _RecordReader(stores.database, feed, group_no)
    try:
        acts, errors = await _read_items(items, channel, now_ms, reader, is_lenient=is_lenient)
        batch = _Batch(actor, feed_id(target.organization_id, channel), group_no, acts, len(items), now_ms)
        decision = await _decide(batch, await reader.records(), yield_to_loop)
    finally:
        await reader.end()
    submission_id = None
    if decision.has_writes:
        seen_writes = 0 if feed is None else feed.writes
        if feed is None:  # not earlier: a refused batch must not open a feed
            await open_feed(stores.database, target, channel)
        decision, submission_id = await _store(
            stores.database, batch, decision, seen_writes=seen_writes, before_commit=before_commit
        )
    return Submission(
        submission_id=submission_id,
        org_slug=target.org_slug,
        group_id=group_id,
        received=len(items),
        created=decision.counts[CREATED],
        updated=decision.counts[UPDATED],
        unchanged=decision.counts[UNCHANGED],
        outranked=decision.counts[OUTRANKED],
        items=UNSET if is_minimal else decision.results,
        item_errors=errors if is_lenient else UNSET,
    )


async def _read_items(
    items: Sequence[Item | BadItem], channel: Channel, now_ms: int, reader: "_RecordReader", *, is_lenient: bool
) -> tuple[list[Act], list[ItemError]]:
    """Return the acts and errors of all items, and start to read the records that the acts meet."""
    acts: list[Act] = []
    errors: list[ItemError] = []
    for at in range(0, len(items), _ITEMS_PER_READ):
        some_acts, some_errors = await read_acts(
            items[at : at + _ITEMS_PER_READ], channel, now_ms=now_ms, first_index=at
        )
        acts += some_acts
        errors += some_errors
        if some_acts:
            reader.start(some_acts)
    if errors and not is_lenient:
        raise _invalid_items(errors, len(items))
    return acts, errors


def _check_permissions(actor: Actor, items: Sequence[Item | BadItem]) -> None:
    statuses = {item.status or (None if isinstance(item, BadItem) else UNSUBSCRIBED) for item in items}
    needed = {_PERMISSION_FOR[status] for status in statuses if status is not None}
    missing = needed - actor.may
    if missing:
        raise InsufficientScope(
            f"This key lacks the permission {' and '.join(sorted(missing))}: ask an administrator for it, "
            "or leave out the items that need it."
        )
    if not needed and actor.may.isdisjoint(_PERMISSION_FOR.values()):
        raise InsufficientScope(
            "This key may not submit anything: ask an administrator for the permission unsubscribe."
        )


def _group(target: Target, *, all_groups: bool) -> tuple[int, str | None]:
    if all_groups:
        return ALL_GROUPS, None
    group = target.group or target.default_group
    if group is None:
        raise DefaultGroupNotConfigured(
            "The organization has no default group: send a group_id, or all_groups: true to opt out of everything.",
            org_slug=target.org_slug,
        )
    return group


def _invalid_items(errors: list[ItemError], received: int) -> InvalidItem:
    first = errors[0]
    return InvalidItem(
        f"{len(errors)} of {received} items cannot be accepted, so nothing was stored. Correct those in item_errors, "
        "or send Prefer: handling=lenient to store the others.",
        item_index=first.item_index,
        item_error=first.item_error,
        item_errors=errors,
    )


class _RecordReader:
    """Reads the records that a batch meets, part by part, while the rest of the batch is validated.

    The parts may be of different moments. If that matters, the lock reveals that another batch was written.
    """

    def __init__(self, database: Database, feed: Feed | None, group_no: int) -> None:
        self._database, self._feed, self._group_no = database, feed, group_no
        self._parts: list[asyncio.Task[list[CurrentRecord]]] = []

    def start(self, acts: list[Act]) -> None:
        """Start to read the records of these acts. A feed that does not exist yet has none."""
        if self._feed is None:
            return
        feed_keys = {"feed_id": self._feed.feed_id, "group_no": self._group_no}
        read = self._database.one_large if len(acts) > HEAVY_ROWS else self._database.one
        self._parts.append(asyncio.create_task(_read_current_records(read, feed_keys, acts)))

    async def records(self) -> dict[str, CurrentRecord]:
        """Return all records by address."""
        records: dict[str, CurrentRecord] = {}
        for part in self._parts:
            for record in await part:
                records.setdefault(record.address, record)
        return records

    async def end(self) -> None:
        """Wait until all reads have ended."""
        await asyncio.gather(*self._parts, return_exceptions=True)


async def _read_current_records(
    read_row: Callable[..., Awaitable[Row | None]], feed_keys: dict[str, int], acts: list[Act]
) -> list[CurrentRecord]:
    # Sorted, because adjacent entries of the index are read together.
    addresses = sorted({act.address for act in acts})
    row = await read_row(_FIND_CURRENT_RECORDS, **feed_keys, addresses=json_text(addresses))
    records = row["records"] if row is not None else None
    return _CURRENT_RECORDS.decode(records) if records is not None else []


async def _decide(
    batch: _Batch, records: dict[str, CurrentRecord], pause: Callable[[], Awaitable[None]]
) -> BatchDecision:
    decision = BatchDecision(records, now_ms=batch.now_ms, sender=sender_key(batch.actor), max_acts=len(batch.acts))
    async for part in in_slices(batch.acts, pause):
        for act in part:
            decision.take(act)
    return decision


async def _store(
    database: Database,
    batch: _Batch,
    first_decision: BatchDecision,
    *,
    seen_writes: int,
    before_commit: BeforeCommit | None,
) -> tuple[BatchDecision, str | None]:
    """Store the batch; return the final decision, and the submission's id if anything was written."""
    submission_id = ids.new_submission_id(sender_key(batch.actor))

    async def store(transaction: Transaction) -> tuple[BatchDecision, str | None]:
        decision = first_decision
        head_seq, is_unchanged = await _lock(transaction, batch, decision, seen_writes)
        if not is_unchanged:
            feed_keys = {"feed_id": batch.feed_id, "group_no": batch.group_no}
            records = await _read_current_records(transaction.one, feed_keys, batch.acts)
            decision = await _decide(batch, {record.address: record for record in records}, transaction.pause)
            if not decision.changes:
                await transaction.run(_GIVE_BACK_NUMBERS, feed_id=batch.feed_id, numbers=len(batch.acts))
            if not decision.has_writes:
                return decision, None
        await _write(transaction, batch, decision, submission_id, last_seq=head_seq)
        if before_commit is not None:
            await before_commit(transaction, submission_id, decision)
        return decision, submission_id

    return await database.write(store, queue_key=batch.feed_id, rows=len(batch.acts))


async def _lock(transaction: Transaction, batch: _Batch, decision: BatchDecision, seen_writes: int) -> tuple[int, bool]:
    """Lock the feed; return the number of the batch's last change, and whether nobody wrote since the decision."""
    row = await transaction.one(
        _LOCK_FEED,
        feed_id=batch.feed_id,
        seen=seen_writes,
        changes=len(decision.changes),
        most=len(batch.acts),
    )
    if row is None:
        raise RuntimeError("the feed's row is gone")
    return row["head_seq"], row["writes"] == seen_writes + 1


async def _write(
    transaction: Transaction, batch: _Batch, decision: BatchDecision, submission_id: str, *, last_seq: int
) -> None:
    """Write the decision in a fixed number of statements, whatever the size of the batch."""
    changes = decision.changes
    first_seq = last_seq - len(changes) + 1
    feed_keys = {"feed_id": batch.feed_id, "group_no": batch.group_no}
    batch_keys = {**feed_keys, "recorded_ms": batch.now_ms, "submission_id": submission_id}
    records = dict(enumerate(changes, first_seq))
    superseded = {first_seq + at: records.pop(first_seq + at) for at in decision.superseded}
    if decision.updated or superseded:
        await transaction.run(
            _KEEP_VERSIONS,
            **batch_keys,
            addresses=json_text(sorted(decision.updated)),
            superseded=json_text(superseded),
        )
    if changes:
        put = _PUT_RECORDS if decision.updated else _ADD_RECORDS
        await transaction.run(put, **batch_keys, records=json_text(records))
    touched = decision.touched
    if touched:
        rows = {at: (record.address, record.latest_act_ms, record.is_confirmed) for at, record in enumerate(touched)}
        await transaction.run(_TOUCH_RECORDS, **feed_keys, touched=json_text(rows))
    await _record_submission(transaction, batch, decision, batch_keys, first_seq=first_seq, last_seq=last_seq)
    if changes:
        await transaction.run(
            _COUNT_CHANGES, feed_id=batch.feed_id, day=batch.now_ms // DAY_MS, counts=json_text(_day_counts(decision))
        )


def _day_counts(decision: BatchDecision) -> dict[int, tuple[object, ...]]:
    """Return by status and reason the number of changes, and by how much the number of records that show it grew."""
    counts: dict[tuple[str, str], list[int]] = {}
    for at, change in enumerate(decision.changes):
        kind_counts = counts.setdefault((change.status, change.reason), [0, 0])
        kind_counts[0] += 1
        kind_counts[1] += at not in decision.superseded
    for kind, count in decision.left_counts.items():
        counts.setdefault(kind, [0, 0])[1] -= count
    return {at: (*kind, *counts[kind]) for at, kind in enumerate(sorted(counts))}


async def _record_submission(
    transaction: Transaction,
    batch: _Batch,
    decision: BatchDecision,
    batch_keys: dict[str, object],
    *,
    first_seq: int,
    last_seq: int,
) -> None:
    has_changes = bool(decision.changes)
    await transaction.run(
        _RECORD_SUBMISSION,
        **batch_keys,
        actor_kind=batch.actor.kind,
        actor_id=batch.actor.id,
        request_id=batch.actor.request_id,
        source_ip=batch.actor.source_ip,
        received_ms=batch.now_ms,
        received=batch.received,
        created=decision.counts[CREATED],
        updated=decision.counts[UPDATED],
        unchanged=decision.counts[UNCHANGED],
        outranked=decision.counts[OUTRANKED],
        rejected=batch.received - len(batch.acts),
        first_seq=first_seq if has_changes else None,
        last_seq=last_seq if has_changes else None,
    )
