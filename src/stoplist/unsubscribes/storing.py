"""Store the decision about a batch: behind the lock of its feed, in a fixed number of statements."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.clock import DAY_MS, Clock
from stoplist.db import HEAVY_ROWS, Database, Transaction
from stoplist.db.query import Query, json_text, load_queries
from stoplist.slicing import in_slices
from stoplist.unsubscribes.decision import CONFIRMED, BatchDecision, Change
from stoplist.unsubscribes.erased import digest_of, stated_address
from stoplist.unsubscribes.feed import UNOPENED, Feed
from stoplist.unsubscribes.feed_lock import LockedFeed, lock_feed, set_state
from stoplist.unsubscribes.feed_state import FeedState, changed_state
from stoplist.unsubscribes.items import Act
from stoplist.unsubscribes.model import (
    CREATED,
    OUTRANKED,
    UNCHANGED,
    UPDATED,
    sender_key,
)
from stoplist.unsubscribes.record_reader import FoundRecords, read_current_records

_QUERIES = load_queries(__package__)
_ADD_RECORDS = _QUERIES["add_records"]
_CONFIRM_RECORDS = _QUERIES["confirm_records"]
_COUNT_CHANGES = _QUERIES["count_changes"]
_GIVE_BACK_NUMBERS = _QUERIES["give_back_numbers"]
_KEEP_VERSIONS = _QUERIES["keep_versions"]
_NOTE_ERASURES = _QUERIES["note_erasures"]
_PUT_RECORDS = _QUERIES["put_records"]
_PUT_RECORDS_WITH_AUDIT = _QUERIES["put_records_with_audit"]
_RECORD_SUBMISSION = _QUERIES["record_submission"]
_RECORDS_AFTER = _QUERIES["state_records_after"]
_RENAME_RECORDS = _QUERIES["rename_records"]
_RENAME_VERSIONS = _QUERIES["rename_versions"]
_TOUCH_RECORDS = _QUERIES["touch_records"]

_MAX_LATER_RECORDS = 1_000

BeforeCommit = Callable[[Transaction, str, BatchDecision], Awaitable[None]]
"""Writes more in the transaction of a submission, given the `submission_id` and the final decision."""


class ValidatedBatch(NamedTuple):
    """The validated acts to store, their target and their actor."""

    actor: Actor
    feed_id: int
    group_no: int
    group_id: str | None
    acts: list[Act]
    received: int
    now_ms: int
    import_id: str | None = None
    """The import whose rows these are: then the import is their sender, not the actor who began it."""

    @property
    def sender(self) -> str:
        return sender_key(self.actor) if self.import_id is None else f"import:{self.import_id}"


async def decide_batch(
    batch: ValidatedBatch, found: FoundRecords, pause: Callable[[], Awaitable[None]]
) -> BatchDecision:
    """Return what the acts change of these records; the records are changed, too."""
    decision = BatchDecision(
        found.by_address,
        now_ms=batch.now_ms,
        sender=batch.sender,
        max_acts=len(batch.acts),
        is_import=batch.import_id is not None,
        is_link=batch.actor.kind == "link",
        erased=found.erased,
    )
    async for part in in_slices(batch.acts, pause):
        for act in part:
            decision.take(act)
    return decision


async def store_batch(
    database: Database,
    batch: ValidatedBatch,
    first_decision: BatchDecision,
    *,
    clock: Clock,
    seen: Feed | None,
    pause: Callable[[], Awaitable[None]],
    before_commit: BeforeCommit | None,
    has_audit: bool = False,
) -> tuple[BatchDecision, str | None]:
    """Store the batch; return the final decision, and the submission's id if anything was written.

    `seen` is the feed before the records of the first decision were read. `pause` is awaited between slices of work
    before the feed is locked. `has_audit`: `before_commit` writes an audit row.
    """
    submission_id = ids.new_submission_id(batch.sender)
    seen = seen or UNOPENED
    state = await state_after_seen(batch, first_decision, seen, pause)

    async def store(transaction: Transaction) -> tuple[BatchDecision, str | None]:
        decision, locked = await lock_and_decide(
            transaction, batch, first_decision, seen=seen, state=state, clock=clock
        )
        if not decision.has_writes:
            return decision, None
        put = _PUT_RECORDS if decision.updated else _ADD_RECORDS
        if has_audit:
            put = _PUT_RECORDS_WITH_AUDIT
        await _write(transaction, batch, decision, submission_id, locked, put=put)
        if before_commit is not None:
            await before_commit(transaction, submission_id, decision)
        return decision, submission_id

    return await database.write(store, queue_key=batch.feed_id, rows=len(batch.acts))


async def state_after_seen(
    batch: ValidatedBatch, first_decision: BatchDecision, seen: Feed, pause: Callable[[], Awaitable[None]]
) -> FeedState:
    """Return the state of the feed after the first decision, if nobody writes to the feed before it is locked."""
    last_seq = seen.head_seq + len(first_decision.changes)
    return await _state_after(batch, first_decision, seen.state, seen.head_seq, last_seq, pause)


async def lock_and_decide(
    transaction: Transaction,
    batch: ValidatedBatch,
    first_decision: BatchDecision,
    *,
    seen: Feed,
    state: FeedState,
    clock: Clock,
) -> tuple[BatchDecision, LockedFeed]:
    """Lock the feed of the batch, and return the decision that holds behind the lock.

    `seen` is the feed before the records of the first decision were read, and `state` its state after that decision.
    The numbers are given back if the decision changes nothing; otherwise the state of the feed is set.
    """
    most = len(batch.acts)
    locked = await lock_feed(
        transaction,
        batch.feed_id,
        seen_writes=seen.writes,
        changes=len(first_decision.changes),
        most=most,
        state=state,
        clock=clock,
    )
    if locked.is_as_seen:
        return first_decision, locked
    decision = await _decide_again(transaction, batch, first_decision, seen.head_seq, locked.erasing_key)
    if not decision.changes:
        await transaction.run(_GIVE_BACK_NUMBERS, feed_id=batch.feed_id, numbers=most)
        return decision, locked
    head_seq = locked.head_seq
    now = await _state_after(batch, decision, locked.state, head_seq - most, head_seq, transaction.pause)
    await set_state(transaction, batch.feed_id, now)
    return decision, locked


async def _decide_again(
    transaction: Transaction,
    batch: ValidatedBatch,
    first_decision: BatchDecision,
    seen_head_seq: int,
    erasing_key: bytes | None,
) -> BatchDecision:
    """Return the decision behind the lock, after others have written to the feed since `seen_head_seq`.

    The first decision holds if it only creates records, and neither they nor erased ones of its persons exist by now.
    """
    creates_all = first_decision.counts[CREATED] == len(batch.acts)
    if creates_all and len(batch.acts) > HEAVY_ROWS and erasing_key is None:
        # People click and partners send while a big batch is prepared: its records are not all read once more for that.
        later = await transaction.all(
            _RECORDS_AFTER, feed_id=batch.feed_id, after=seen_head_seq, most=_MAX_LATER_RECORDS
        )
        if len(later) < _MAX_LATER_RECORDS:
            addresses = {row["address"] for row in later if row["group_no"] == batch.group_no}
            if addresses.isdisjoint(act.address for act in batch.acts):
                return first_decision
    feed_keys = {"feed_id": batch.feed_id, "group_no": batch.group_no}
    found = await read_current_records(
        transaction.one, feed_keys, batch.acts, erasing_key=erasing_key, pause=transaction.pause
    )
    if creates_all and not found.by_address and not found.erased and not first_decision.meets_erased:
        return first_decision
    return await decide_batch(batch, found, transaction.pause)


async def _state_after(
    batch: ValidatedBatch,
    decision: BatchDecision,
    state: FeedState,
    head_seq: int,
    new_head_seq: int,
    pause: Callable[[], Awaitable[None]],
) -> FeedState:
    """Return the state of the feed after the decision, which takes its head from `head_seq` to `new_head_seq`."""
    group_id, superseded = batch.group_id, decision.superseded
    first_seq = new_head_seq - len(decision.changes) + 1
    changes: Sequence[Change] = decision.changes
    if decision.meets_erased:
        changes = [msgspec.structs.replace(change, address=stated_address(change.address)) for change in changes]
    return await changed_state(
        state,
        head_seq=head_seq,
        new_head_seq=new_head_seq,
        replaced=[(id_, group_id, address, status, seq) for id_, address, status, seq in decision.replaced],
        added=[
            (change.id, group_id, change.address, change.status, seq)
            for seq, change in enumerate(changes, first_seq)
            if not superseded or seq - first_seq not in superseded
        ],
        pause=pause,
    )


async def _write(
    transaction: Transaction,
    batch: ValidatedBatch,
    decision: BatchDecision,
    submission_id: str,
    locked: LockedFeed,
    *,
    put: Query,
) -> None:
    """Write the decision in a fixed number of statements, whatever the size of the batch."""
    changes, last_seq = decision.changes, locked.head_seq
    first_seq = last_seq - len(changes) + 1
    feed_keys = {"feed_id": batch.feed_id, "group_no": batch.group_no}
    batch_keys = {**feed_keys, "recorded_ms": locked.recorded_ms, "submission_id": submission_id}
    records = dict(enumerate(changes, first_seq))
    superseded = {first_seq + at: records.pop(first_seq + at) for at in decision.superseded}
    if decision.returned:
        await _bring_back(transaction, decision, batch_keys, first_seq=first_seq)
    if decision.updated or superseded:
        await transaction.run(
            _KEEP_VERSIONS,
            **batch_keys,
            addresses=json_text(sorted(record.address for record in decision.updated)),
            superseded=json_text(superseded),
        )
    if changes:
        await transaction.run(put, **batch_keys, records=json_text(records))
    await touch_records(transaction, decision, feed_keys)
    await _record_submission(transaction, batch, decision, batch_keys, first_seq=first_seq, last_seq=last_seq)
    if changes:
        await count_changes(transaction, batch.feed_id, decision, recorded_ms=locked.recorded_ms)


async def touch_records(transaction: Transaction, decision: BatchDecision, feed_keys: dict[str, int]) -> None:
    """Store the latest acts and confirmations of the records that keep their state, in one statement."""
    touched = decision.touched
    if any(record.has_later_act or record.is_confirmed != CONFIRMED for record in touched):
        rows = {at: (record.address, record.latest_act_ms, record.is_confirmed) for at, record in enumerate(touched)}
        await transaction.run(_TOUCH_RECORDS, **feed_keys, touched=json_text(rows))
    elif touched:
        addresses = json_text(sorted(record.address for record in touched))
        await transaction.run(_CONFIRM_RECORDS, **feed_keys, addresses=addresses)


async def count_changes(transaction: Transaction, feed_id: int, decision: BatchDecision, *, recorded_ms: int) -> None:
    """Add the changes to the counts of their day."""
    counts = json_text(_day_counts(decision))
    await transaction.run(_COUNT_CHANGES, feed_id=feed_id, day=recorded_ms // DAY_MS, counts=counts)


async def _bring_back(
    transaction: Transaction, decision: BatchDecision, batch_keys: dict[str, object], *, first_seq: int
) -> None:
    """Give records and their versions the addresses that resubscriptions brought back."""
    where = {name: batch_keys[name] for name in ("feed_id", "group_no")}
    renamed = {returned.erased_form: returned.address for returned in decision.returned if returned.is_stored}
    if renamed:
        await transaction.run(_RENAME_RECORDS, **where, renamed=json_text(renamed))
        await transaction.run(_RENAME_VERSIONS, **where, renamed=json_text(renamed))
    noted = {}
    for returned in decision.returned:
        seq = first_seq + returned.change
        noted[seq] = (returned.record_id, digest_of(returned.erased_form), seq)
    await transaction.run(
        _NOTE_ERASURES,
        feed_id=batch_keys["feed_id"],
        kind="returned",
        submission_id=batch_keys["submission_id"],
        at_ms=batch_keys["recorded_ms"],
        noted=json_text(noted),
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
        rejected=batch.received - sum(decision.counts.values()),
        first_seq=first_seq if has_changes else None,
        last_seq=last_seq if has_changes else None,
    )
