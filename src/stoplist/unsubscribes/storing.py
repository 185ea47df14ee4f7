"""Store a batch: decide without a lock, lock the feed, and decide again if others have written to it meanwhile."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from stoplist import ids
from stoplist.clock import Clock
from stoplist.db import HEAVY_ROWS, Database, Transaction
from stoplist.db.query import load_queries
from stoplist.slicing import in_slices
from stoplist.unsubscribes.decision import BatchDecision, Change
from stoplist.unsubscribes.erased import stated_address
from stoplist.unsubscribes.feed import UNOPENED, Feed
from stoplist.unsubscribes.feed_lock import LockedFeed, lock_feed, set_state
from stoplist.unsubscribes.feed_state import FeedState, changed_state
from stoplist.unsubscribes.model import CREATED
from stoplist.unsubscribes.record_reader import FoundRecords, read_current_records
from stoplist.unsubscribes.record_writer import write_decision
from stoplist.unsubscribes.validated_batch import ValidatedBatch

_QUERIES = load_queries(__package__)
_ADD_RECORDS = _QUERIES["add_records"]
_GIVE_BACK_NUMBERS = _QUERIES["give_back_numbers"]
_PUT_RECORDS = _QUERIES["put_records"]
_PUT_RECORDS_WITH_AUDIT = _QUERIES["put_records_with_audit"]
_RECORDS_AFTER = _QUERIES["state_records_after"]

_MAX_LATER_RECORDS = 1_000

BeforeCommit = Callable[[Transaction, str, BatchDecision], Awaitable[None]]
"""Writes more in the transaction of a submission, given the `submission_id` and the final decision."""


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
        await write_decision(transaction, batch, decision, submission_id, locked, put=put)
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
