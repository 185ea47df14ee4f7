"""Store the decision about a batch: behind the lock of its feed, in a fixed number of statements."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from stoplist import ids
from stoplist.actor import Actor
from stoplist.clock import DAY_MS
from stoplist.db import Database, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.slicing import in_slices
from stoplist.unsubscribes.decision import BatchDecision, CurrentRecord
from stoplist.unsubscribes.items import Act
from stoplist.unsubscribes.model import (
    CREATED,
    OUTRANKED,
    UNCHANGED,
    UPDATED,
    sender_key,
)
from stoplist.unsubscribes.record_reader import read_current_records

_QUERIES = load_queries(__package__)
_ADD_RECORDS = _QUERIES["add_records"]
_COUNT_CHANGES = _QUERIES["count_changes"]
_GIVE_BACK_NUMBERS = _QUERIES["give_back_numbers"]
_KEEP_VERSIONS = _QUERIES["keep_versions"]
_LOCK_FEED = _QUERIES["lock_feed"]
_PUT_RECORDS = _QUERIES["put_records"]
_RECORD_SUBMISSION = _QUERIES["record_submission"]
_TOUCH_RECORDS = _QUERIES["touch_records"]

BeforeCommit = Callable[[Transaction, str, BatchDecision], Awaitable[None]]
"""Writes more in the transaction of a submission, given the `submission_id` and the final decision."""


class ValidatedBatch(NamedTuple):
    """The validated acts to store, their target and their actor."""

    actor: Actor
    feed_id: int
    group_no: int
    acts: list[Act]
    received: int
    now_ms: int


async def decide_batch(
    batch: ValidatedBatch, records: dict[str, CurrentRecord], pause: Callable[[], Awaitable[None]]
) -> BatchDecision:
    decision = BatchDecision(records, now_ms=batch.now_ms, sender=sender_key(batch.actor), max_acts=len(batch.acts))
    async for part in in_slices(batch.acts, pause):
        for act in part:
            decision.take(act)
    return decision


async def store_batch(
    database: Database,
    batch: ValidatedBatch,
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
            records = await read_current_records(transaction.one, feed_keys, batch.acts)
            decision = await decide_batch(batch, {record.address: record for record in records}, transaction.pause)
            if not decision.changes:
                await transaction.run(_GIVE_BACK_NUMBERS, feed_id=batch.feed_id, numbers=len(batch.acts))
            if not decision.has_writes:
                return decision, None
        await _write(transaction, batch, decision, submission_id, last_seq=head_seq)
        if before_commit is not None:
            await before_commit(transaction, submission_id, decision)
        return decision, submission_id

    return await database.write(store, queue_key=batch.feed_id, rows=len(batch.acts))


async def _lock(
    transaction: Transaction, batch: ValidatedBatch, decision: BatchDecision, seen_writes: int
) -> tuple[int, bool]:
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
    transaction: Transaction, batch: ValidatedBatch, decision: BatchDecision, submission_id: str, *, last_seq: int
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
    batch: ValidatedBatch,
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
