"""Write a decision behind the lock of its feed: records, versions, the submission and the counts of the day."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from stoplist.clock import DAY_MS
from stoplist.db import Transaction
from stoplist.db.query import Query, json_text, load_queries
from stoplist.unsubscribes.decision import CONFIRMED, BatchDecision
from stoplist.unsubscribes.erased import digest_of
from stoplist.unsubscribes.feed_lock import LockedFeed
from stoplist.unsubscribes.model import CREATED, OUTRANKED, UNCHANGED, UPDATED
from stoplist.unsubscribes.validated_batch import ValidatedBatch

_QUERIES = load_queries(__package__)
_CONFIRM_RANGES = _QUERIES["confirm_ranges"]
_CONFIRM_RECORDS = _QUERIES["confirm_records"]
_COUNT_CHANGES = _QUERIES["count_changes"]
_KEEP_VERSIONS = _QUERIES["keep_versions"]
_NOTE_ERASURES = _QUERIES["note_erasures"]
_RECORD_SUBMISSION = _QUERIES["record_submission"]
_RENAME_RECORDS = _QUERIES["rename_records"]
_RENAME_VERSIONS = _QUERIES["rename_versions"]
_TOUCH_RECORDS = _QUERIES["touch_records"]

# Until a statement ends, SQLite keeps in memory what each page that it changed was before: 4 KiB for almost every
# record of a big feed.
_RECORDS_PER_STATEMENT = 1_000


async def write_decision(
    transaction: Transaction,
    batch: ValidatedBatch,
    decision: BatchDecision,
    submission_id: str,
    locked: LockedFeed,
    *,
    put: Query,
) -> None:
    """Write the decision: one statement for each 1 000 records, and a fixed number of others."""
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
    numbered = list(records.items())
    for at in range(0, len(numbered), _RECORDS_PER_STATEMENT):
        some = dict(numbered[at : at + _RECORDS_PER_STATEMENT])
        await transaction.run(put, **batch_keys, records=json_text(some))
    await touch_records(transaction, decision, feed_keys)
    await _record_submission(transaction, batch, decision, batch_keys, first_seq=first_seq, last_seq=last_seq)
    if changes:
        await count_changes(transaction, batch.feed_id, decision.day_counts(), recorded_ms=locked.recorded_ms)


async def touch_records(transaction: Transaction, decision: BatchDecision, feed_keys: dict[str, int]) -> None:
    """Store the latest acts and confirmations of the records that keep their state, in at most two statements."""
    confirmed = decision.confirmed_by_import
    if confirmed:
        ranges = json_text(_ranges_of(record.seq for record in confirmed))
        await transaction.run(_CONFIRM_RANGES, feed_id=feed_keys["feed_id"], ranges=ranges)
    touched = [record for record in decision.touched if record.has_later_act] if confirmed else decision.touched
    if any(record.has_later_act or record.is_confirmed != CONFIRMED for record in touched):
        rows = {at: (record.address, record.latest_act_ms, record.is_confirmed) for at, record in enumerate(touched)}
        await transaction.run(_TOUCH_RECORDS, **feed_keys, touched=json_text(rows))
    elif touched:
        seqs = json_text(sorted(record.seq for record in touched))
        await transaction.run(_CONFIRM_RECORDS, feed_id=feed_keys["feed_id"], seqs=seqs)


def _ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of adjacent numbers. They may come in any order."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


async def count_changes(
    transaction: Transaction, feed_id: int, day_counts: Mapping[int, tuple[object, ...]], *, recorded_ms: int
) -> None:
    """Add rows to the counts of a day: status, reason, number of changes, and growth of the records that show them."""
    day = recorded_ms // DAY_MS
    await transaction.run(_COUNT_CHANGES, feed_id=feed_id, day=day, counts=json_text(day_counts))


async def note_erasures(
    transaction: Transaction,
    feed_id: int,
    kind: Literal["erased", "returned", "again"],
    submission_id: str,
    noted: Mapping[int, tuple[str, str | None, int]],
    *,
    at_ms: int,
) -> None:
    """Note which records a submission has erased or brought back: id, digest and former number by new number."""
    await transaction.run(
        _NOTE_ERASURES, feed_id=feed_id, kind=kind, submission_id=submission_id, at_ms=at_ms, noted=json_text(noted)
    )


async def _bring_back(
    transaction: Transaction, decision: BatchDecision, batch_keys: dict[str, Any], *, first_seq: int
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
    await note_erasures(
        transaction,
        batch_keys["feed_id"],
        "returned",
        batch_keys["submission_id"],
        noted,
        at_ms=batch_keys["recorded_ms"],
    )


async def _record_submission(
    transaction: Transaction,
    batch: ValidatedBatch,
    decision: BatchDecision,
    batch_keys: dict[str, Any],
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
