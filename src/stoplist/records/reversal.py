"""Reverse a submission: each record returns to its former state, as a new change in the feed. Nothing is deleted.

Source: docs/interface.md section D11, Reversing.
"""

from typing import Literal

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import DAY_MS
from stoplist.db import HEAVY_ROWS, Database, Row, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused
from stoplist.records.reversal_plan import ReadRow, Reversal, ReversalPlan, count_reversible, read_plan
from stoplist.records.submissions import SubmissionDetails, find_visible_submission
from stoplist.slicing import in_slices
from stoplist.unsubscribes.model import OptOutStores, sender_key

_QUERIES = load_queries(__package__)
_FEED_QUERIES = load_queries("stoplist.unsubscribes")
_COUNT_CHANGES = _FEED_QUERIES["count_changes"]
_FEED = _FEED_QUERIES["feed"]
_GIVE_BACK_NUMBERS = _FEED_QUERIES["give_back_numbers"]
_KEEP_VERSIONS = _FEED_QUERIES["keep_versions"]
_LEFT_OUT = _QUERIES["left_out_of_reversal"]
_LOCK_FEED = _FEED_QUERIES["lock_feed"]
_PUT_RECORDS = _FEED_QUERIES["put_records"]
_RECORD_REVERSAL = _QUERIES["record_reversal"]
_RECORD_SUBMISSION = _FEED_QUERIES["record_submission"]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is not reversed, the reason, and its present state.

    `seq` is the number of the last state that the submission gave the record, `now_seq` that of the present state.
    """

    seq: int
    address: str
    why: Literal["superseded", "confirmed"]
    status: str
    reason: str
    now_seq: int


async def count_reversal(actor: Actor, stores: OptOutStores, submission: str | SubmissionDetails) -> Reversal:
    """Return what `reverse` would do at this moment, without changing anything.

    `submission` is an id or details found before. For administrators: Missing if the actor does not see the submission,
    Forbidden if the actor sees it but is not an administrator.
    """
    submission = await _require_administrator(actor, stores, submission)
    return await count_reversible(_row_reader(stores.database, submission), submission)


async def reverse(
    actor: Actor, stores: OptOutStores, submission_id: str, *, expected: Reversal | None = None
) -> Reversal:
    """Return the records whose present state comes from the submission to their former state, durably; may be repeated.

    `expected` is the result of `count_reversal`: Refused, and nothing changed, if it no longer holds. The second time
    nothing is left to reverse. The reversal is a submission too, and can be reversed like any other.
    For administrators: Missing if the actor does not see the submission, Forbidden if the actor sees it but is not one.
    Source: docs/interface.md section D11, Reversing.
    """
    submission = await _require_administrator(actor, stores, submission_id)
    # The feed's `writes` is read before the records, so that the lock reveals any later write.
    feed = await stores.database.one(_FEED, feed_id=submission.feed_id)
    plan = await read_plan(_row_reader(stores.database, submission), submission)
    _require_expected(expected, plan.counts)
    if feed is None or not plan.records:
        return plan.counts
    reversing = _ReversalUnit(actor, submission, plan, expected, stores.clock.now_ms())
    return await reversing.store(stores.database, seen_writes=feed["writes"])


async def left_out(
    actor: Actor,
    stores: OptOutStores,
    submission: str | SubmissionDetails,
    *,
    after_seq: int | None = None,
    limit: int = 50,
) -> list[LeftOut]:
    """Return the records that a reversal leaves out, or has left out, ordered by `seq`, after `after_seq`.

    Records that a reversal of the submission has reversed are not included. Errors as for `count_reversal`.
    """
    submission = await _require_administrator(actor, stores, submission)
    if submission.first_seq is None:
        return []
    rows = await stores.database.all(
        _LEFT_OUT,
        feed_id=submission.feed_id,
        submission_id=submission.submission_id,
        after=max(submission.first_seq - 1, after_seq or 0),
        last_seq=submission.last_seq,
        most=limit,
    )
    return [_left_out(row) for row in rows]


class _ReversalUnit:
    """One reversal: planned without a lock, and stored behind the lock."""

    def __init__(
        self, actor: Actor, submission: SubmissionDetails, plan: ReversalPlan, expected: Reversal | None, now_ms: int
    ) -> None:
        self._actor, self._submission, self._plan, self._expected = actor, submission, plan, expected
        self._now_ms = now_ms
        self._submission_id = ids.new_submission_id(sender_key(actor))
        self._batch_keys = {
            "feed_id": submission.feed_id,
            "group_no": submission.group_no,
            "recorded_ms": now_ms,
            "submission_id": self._submission_id,
        }

    async def store(self, database: Database, *, seen_writes: int) -> Reversal:
        """Store the reversal durably; return its counts."""
        feed_id = self._submission.feed_id
        max_changes = len(
            self._plan.records
        )  # records only ever leave a submission, so behind the lock there are no more

        async def store(transaction: Transaction) -> Reversal:
            plan = self._plan
            row = await transaction.one(
                _LOCK_FEED, feed_id=feed_id, seen=seen_writes, changes=max_changes, most=max_changes
            )
            if row is None:
                raise RuntimeError("the feed's row is gone")
            if row["writes"] != seen_writes + 1:
                plan = await read_plan(transaction.one, self._submission)
                _require_expected(self._expected, plan.counts)
                if not plan.records:
                    await transaction.run(_GIVE_BACK_NUMBERS, feed_id=feed_id, numbers=max_changes)
                    return plan.counts
            await self._write(transaction, plan, last_seq=row["head_seq"])
            return msgspec.structs.replace(plan.counts, submission_id=self._submission_id)

        return await database.write(store, queue_key=feed_id, rows=max_changes)

    async def _write(self, transaction: Transaction, plan: ReversalPlan, *, last_seq: int) -> None:
        """Write the reversal in a fixed number of statements, whatever the size of the submission."""
        count = len(plan.records)
        first_seq = last_seq - count + 1
        records: dict[int, tuple[object, ...]] = {}
        async for part in in_slices(plan.records, transaction.pause):
            for record in part:
                records[first_seq + len(records)] = record.reversed_row(self._now_ms)
        addresses = sorted(record.address for record in plan.records)
        await transaction.run(_KEEP_VERSIONS, **self._batch_keys, addresses=json_text(addresses), superseded="{}")
        await transaction.run(_PUT_RECORDS, **self._batch_keys, records=json_text(records))
        await self._record_submission(transaction, count, first_seq=first_seq, last_seq=last_seq)
        await transaction.run(
            _COUNT_CHANGES,
            feed_id=self._submission.feed_id,
            day=self._now_ms // DAY_MS,
            counts=json_text(plan.day_counts()),
        )
        await self._record_reversal(transaction, plan.counts)

    async def _record_submission(self, transaction: Transaction, count: int, *, first_seq: int, last_seq: int) -> None:
        await transaction.run(
            _RECORD_SUBMISSION,
            **self._batch_keys,
            actor_kind=self._actor.kind,
            actor_id=self._actor.id,
            request_id=self._actor.request_id,
            source_ip=self._actor.source_ip,
            received_ms=self._now_ms,
            received=count,
            created=0,
            updated=count,
            unchanged=0,
            outranked=0,
            rejected=0,
            first_seq=first_seq,
            last_seq=last_seq,
        )

    async def _record_reversal(self, transaction: Transaction, counts: Reversal) -> None:
        submission = self._submission
        await transaction.run(
            _RECORD_REVERSAL,
            feed_id=submission.feed_id,
            submission_id=submission.submission_id,
            reversed_by=self._submission_id,
            reversed_ms=self._now_ms,
        )
        await trail.record(
            transaction,
            self._actor,
            "submission.reverse",
            submission.submission_id,
            at_ms=self._now_ms,
            organizations=(submission.org_slug,),
            reversed_by=self._submission_id,
            restored=counts.restored,
            corrected=counts.corrected,
            superseded=counts.superseded,
            confirmed=counts.confirmed,
        )


async def _require_administrator(
    actor: Actor, stores: OptOutStores, submission: str | SubmissionDetails
) -> SubmissionDetails:
    details = await find_visible_submission(actor, stores.database, submission)
    actor.require_administrator()
    return details


def _row_reader(database: Database, submission: SubmissionDetails) -> ReadRow:
    return database.one_large if submission.changes > HEAVY_ROWS else database.one


def _require_expected(expected: Reversal | None, counts: Reversal) -> None:
    if expected is not None and not counts.agrees_with(expected):
        raise Refused(
            "Some of its records were changed or sent again meanwhile, so the counts you were shown no longer hold. "
            "Nothing was changed. Check the new counts and confirm again."
        )


def _left_out(row: Row) -> LeftOut:
    return LeftOut(
        seq=row["seq"],
        address=row["address"],
        why="confirmed" if row["is_confirmed"] else "superseded",
        status=row["now_status"],
        reason=row["now_reason"],
        now_seq=row["now_seq"],
    )
