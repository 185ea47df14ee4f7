"""Take a submission back: each record returns to what it was before, as a new change in the feed. Nothing is deleted.

Source: docs/interface.md section D11, Reversing.
"""

from typing import Literal

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import HEAVY_ROWS, Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.records.reversal_plan import ReadRow, Reversal, ReversalPlan, count_reversible, look
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

_DAY_MS = 86_400_000


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is not taken back, why, and what it shows now.

    `seq` is the number of the last state that the submission made of it, `now_seq` that of the present one.
    """

    seq: int
    address: str
    why: Literal["superseded", "confirmed"]
    status: str
    reason: str
    now_seq: int


async def count_reversal(actor: Actor, stores: OptOutStores, submission: str | SubmissionDetails) -> Reversal:
    """What `reverse` would do at this moment; changes nothing. The submission by its id, or as it was found.

    For administrators: Missing for who does not see the submission, Forbidden for who does.
    """
    submission = await _require_administrator(actor, stores, submission)
    return await count_reversible(_reading(stores.database, submission), submission)


async def reverse(
    actor: Actor, stores: OptOutStores, submission_id: str, *, expected: Reversal | None = None
) -> Reversal:
    """The records that stand on the submission alone are what they were before, durably; may be repeated.

    `expected` is what `count_reversal` said: Refused, and nothing changed, where it does not hold any more. A second
    time nothing is left to take back. The reversal is a submission too, and can be reversed like any.
    For administrators: Missing for who does not see the submission, Forbidden for who does.
    Source: docs/interface.md section D11, Reversing.
    """
    submission = await _require_administrator(actor, stores, submission_id)
    # The feed's `writes` is read before the records: if anybody writes after this, the lock will show it.
    feed = await stores.database.one(_FEED, feed_id=submission.feed_id)
    found = await look(_reading(stores.database, submission), submission)
    _must_be(expected, found.counts)
    if feed is None or not found.standing:
        return found.counts
    reversing = _Reversing(actor, submission, found, expected, stores.clock.now_ms())
    return await reversing.store(stores.database, seen_writes=feed["writes"])


async def left_out(
    actor: Actor,
    stores: OptOutStores,
    submission: str | SubmissionDetails,
    *,
    after_seq: int | None = None,
    limit: int = 50,
) -> list[LeftOut]:
    """The records that a reversal leaves out, or has left out, and why: by `seq`, after `after_seq`.

    Those that a reversal of the submission took back are not among them. Given and refused as with `count_reversal`.
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


class _Reversing:
    """One reversal: what was found without a lock, and how it is stored behind it."""

    def __init__(
        self, actor: Actor, submission: SubmissionDetails, found: ReversalPlan, expected: Reversal | None, now_ms: int
    ) -> None:
        self._actor, self._submission, self._found, self._expected = actor, submission, found, expected
        self._now_ms = now_ms
        self._submission_id = ids.new_submission_id(sender_key(actor))
        self._of_batch = {
            "feed_id": submission.feed_id,
            "group_no": submission.group_no,
            "recorded_ms": now_ms,
            "submission_id": self._submission_id,
        }

    async def store(self, database: Database, *, seen_writes: int) -> Reversal:
        """What was done, once it is durable."""
        feed_id = self._submission.feed_id
        most = len(self._found.standing)  # records only ever leave a submission: behind the lock there are no more

        async def store(transaction: Transaction) -> Reversal:
            found = self._found
            row = await transaction.one(_LOCK_FEED, feed_id=feed_id, seen=seen_writes, changes=most, most=most)
            if row is None:
                raise RuntimeError("the feed's row is gone")
            if row["writes"] != seen_writes + 1:
                found = await look(transaction.one, self._submission)
                _must_be(self._expected, found.counts)
                if not found.standing:
                    await transaction.run(_GIVE_BACK_NUMBERS, feed_id=feed_id, numbers=most)
                    return found.counts
            await self._write(transaction, found, last_seq=row["head_seq"])
            return msgspec.structs.replace(found.counts, submission_id=self._submission_id)

        return await database.write(store, queue_key=feed_id, rows=most)

    async def _write(self, transaction: Transaction, found: ReversalPlan, *, last_seq: int) -> None:
        """A fixed number of statements, whatever the size of the submission."""
        count = len(found.standing)
        first_seq = last_seq - count + 1
        records: dict[int, tuple[object, ...]] = {}
        async for part in in_slices(found.standing, transaction.pause):
            for record in part:
                records[first_seq + len(records)] = record.returned(self._now_ms)
        addresses = sorted(record.address for record in found.standing)
        await transaction.run(_KEEP_VERSIONS, **self._of_batch, addresses=_json(addresses), superseded="{}")
        await transaction.run(_PUT_RECORDS, **self._of_batch, records=_json(records))
        await self._record_submission(transaction, count, first_seq=first_seq, last_seq=last_seq)
        await transaction.run(
            _COUNT_CHANGES,
            feed_id=self._submission.feed_id,
            day=self._now_ms // _DAY_MS,
            counts=_json(found.day_counts()),
        )
        await self._record_reversal(transaction, found.counts)

    async def _record_submission(self, transaction: Transaction, count: int, *, first_seq: int, last_seq: int) -> None:
        await transaction.run(
            _RECORD_SUBMISSION,
            **self._of_batch,
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
    seen = await find_visible_submission(actor, stores.database, submission)
    actor.require_administrator()
    return seen


def _reading(database: Database, submission: SubmissionDetails) -> ReadRow:
    return database.one_large if submission.changes > HEAVY_ROWS else database.one


def _must_be(expected: Reversal | None, counts: Reversal) -> None:
    if expected is not None and not counts.agrees_with(expected):
        raise Refused(
            "Meanwhile some of its records were changed or sent again, so others would be taken back than you were "
            "shown, and nothing was changed: look at the new counts, and confirm them."
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


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
