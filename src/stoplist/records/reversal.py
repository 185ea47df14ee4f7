"""Reverse a submission: each record returns to its former state, as a new change in the feed. Nothing is deleted.

Source: docs/interface.md section D11, Reversing.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import DAY_MS, Clock
from stoplist.db import HEAVY_ROWS, Database, Row, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Missing, Refused
from stoplist.notices import outbox
from stoplist.notices.model import REVERSAL_ENDED
from stoplist.records.reversal_plan import (
    ReadRow,
    Reversal,
    ReversalPlan,
    ReversibleRecord,
    count_reversible,
    read_plan,
)
from stoplist.records.submissions import ERASE, SubmissionDetails, find_visible_submission
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.decision import REPEATED_BY_LINK
from stoplist.unsubscribes.erased import digest_of, erased_form, stated_address
from stoplist.unsubscribes.feed import Feed, find_feed_by_id
from stoplist.unsubscribes.feed_lock import LockedFeed, lock_feed, set_state
from stoplist.unsubscribes.feed_state import FeedState, changed_state
from stoplist.unsubscribes.model import OptOutStores, sender_key

_QUERIES = load_queries(__package__)
_FEED_QUERIES = load_queries("stoplist.unsubscribes")
_ERASE_RECORD = _QUERIES["erase_record_again"]
_ERASE_VERSIONS = _QUERIES["erase_versions_again"]
_COUNT_CHANGES = _FEED_QUERIES["count_changes"]
_GIVE_BACK_NUMBERS = _FEED_QUERIES["give_back_numbers"]
_KEEP_VERSIONS = _FEED_QUERIES["keep_versions"]
_LEFT_OUT = _QUERIES["left_out_of_reversal"]
_NOTE_ERASURES = _FEED_QUERIES["note_erasures"]
_PUT_RECORDS = _FEED_QUERIES["put_records_with_audit"]
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


class ReversedImport(msgspec.Struct, frozen=True):
    """An import that is reversed part by part, and the first submission of that reversal, if there is one."""

    import_id: str
    first_submission_id: str | None = None


def is_recent(stores: OptOutStores, received_ms: int) -> bool:
    """Return whether what was received at this time can still be reversed, whatever of it is still stored."""
    return not stores.history_days or received_ms >= stores.clock.now_ms() - stores.history_days * DAY_MS


def require_recent(stores: OptOutStores, received_ms: int) -> None:
    """Raise Refused if what was received at this time can no longer be reversed.

    Source: docs/interface.md section D13, Retention.
    """
    if not is_recent(stores, received_ms):
        days = "1 day" if stores.history_days == 1 else f"{stores.history_days} days"
        raise Refused(
            f"What was received more than {days} ago (STOPLIST_HISTORY_DAYS) can no longer be "
            "reversed: its earlier states are not kept."
        )


async def count_reversal(
    actor: Actor,
    stores: OptOutStores,
    submission: str | SubmissionDetails,
    *,
    also_confirmed: int = REPEATED_BY_LINK,
) -> Reversal:
    """Return what `reverse` would do at this moment, without changing anything.

    `also_confirmed` as for `read_plan`. `submission` is an id or details found before. For administrators: Missing if
    the actor does not see the submission, Forbidden if the actor sees it but is not an administrator. Refused for
    what was received too long ago.
    """
    submission = await _require_administrator(actor, stores, submission)
    require_recent(stores, submission.received_ms)
    if submission.kind == ERASE:
        return Reversal()
    return await count_reversible(_row_reader(stores.database, submission), submission, also_confirmed=also_confirmed)


async def reverse(
    actor: Actor,
    stores: OptOutStores,
    submission_id: str,
    *,
    expected: Reversal | None = None,
    also_confirmed: int = REPEATED_BY_LINK,
    notifies: bool = True,
    of_import: ReversedImport | None = None,
) -> Reversal:
    """Return the records whose present state comes from the submission to their former state, durably; may be repeated.

    `expected` is the result of `count_reversal`: Refused, and nothing changed, if it no longer holds. The second time
    nothing is left to reverse. The reversal is a submission too, and can be reversed like any other.
    `also_confirmed` as for `read_plan`. `notifies` is False for a part of a reversal that adds a notice of its own;
    `of_import` is that reversal, if it is of an import.
    For administrators: Missing if the actor does not see the submission, Forbidden if the actor sees it but is not one.
    Refused for what was received too long ago.
    Source: docs/interface.md section D11, Reversing.
    """
    submission = await _require_administrator(actor, stores, submission_id)
    require_recent(stores, submission.received_ms)
    return await _reverse(actor, stores, submission, expected, also_confirmed, notifies=notifies, of_import=of_import)


async def undo(actor: Actor, stores: OptOutStores, submission: SubmissionDetails) -> Reversal:
    """Do what `reverse` does with a submission that the actor sent. Missing for those of others.

    For the person who just acted by a link. Source: docs/interface.md section D15, Undo.
    """
    if (submission.actor_kind, submission.actor_id) != (actor.kind, actor.id):
        raise Missing("There is no such submission of this sender.")
    return await _reverse(actor, stores, submission, None, REPEATED_BY_LINK, notifies=False)


async def _reverse(
    actor: Actor,
    stores: OptOutStores,
    submission: SubmissionDetails,
    expected: Reversal | None,
    also_confirmed: int,
    *,
    notifies: bool,
    of_import: ReversedImport | None = None,
) -> Reversal:
    if submission.kind == ERASE:
        raise Refused("An erasure cannot be taken back: nobody knows the address any more.")
    # The feed's `writes` is read before the records, so that the lock reveals any later write.
    feed = await find_feed_by_id(stores.database, submission.feed_id)
    plan = await read_plan(_row_reader(stores.database, submission), submission, also_confirmed=also_confirmed)
    _require_expected(expected, plan.counts)
    if feed is None or not plan.records:
        return plan.counts
    reversing = _ReversalUnit(actor, submission, plan, expected, stores.clock, also_confirmed, notifies, of_import)
    return await reversing.store(stores.database, seen=feed)


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
        self,
        actor: Actor,
        submission: SubmissionDetails,
        plan: ReversalPlan,
        expected: Reversal | None,
        clock: Clock,
        also_confirmed: int,
        notifies: bool,
        of_import: ReversedImport | None,
    ) -> None:
        self._actor, self._submission, self._plan, self._expected = actor, submission, plan, expected
        self._also_confirmed, self._notifies, self._of_import = also_confirmed, notifies, of_import
        self._clock, self._received_ms = clock, clock.now_ms()
        self._submission_id = ids.new_submission_id(sender_key(actor))
        self._batch_keys = {
            "feed_id": submission.feed_id,
            "group_no": submission.group_no,
            "submission_id": self._submission_id,
        }

    async def store(self, database: Database, *, seen: Feed) -> Reversal:
        """Store the reversal durably; return its counts. `seen` is the feed before the plan was read."""
        feed_id = self._submission.feed_id
        max_changes = len(
            self._plan.records
        )  # records only ever leave a submission, so behind the lock there are no more

        state = await self._state_after(
            self._plan, seen.state, seen.head_seq, seen.head_seq + max_changes, seen.erasing_key, yield_to_loop
        )

        async def store(transaction: Transaction) -> Reversal:
            plan = self._plan
            locked = await lock_feed(
                transaction,
                feed_id,
                seen_writes=seen.writes,
                changes=max_changes,
                most=max_changes,
                state=state,
                clock=self._clock,
            )
            head_seq = locked.head_seq
            if not locked.is_as_seen:
                plan = await read_plan(transaction.one, self._submission, also_confirmed=self._also_confirmed)
                _require_expected(self._expected, plan.counts)
                if not plan.records:
                    await transaction.run(_GIVE_BACK_NUMBERS, feed_id=feed_id, numbers=max_changes)
                    return plan.counts
                now = await self._state_after(
                    plan, locked.state, head_seq - max_changes, head_seq, locked.erasing_key, transaction.pause
                )
                await set_state(transaction, feed_id, now)
            await self._write(transaction, plan, locked)
            return msgspec.structs.replace(plan.counts, submission_id=self._submission_id)

        return await database.write(store, queue_key=feed_id, rows=max_changes)

    async def _state_after(
        self,
        plan: ReversalPlan,
        state: FeedState,
        head_seq: int,
        new_head_seq: int,
        erasing_key: bytes | None,
        pause: Callable[[], Awaitable[None]],
    ) -> FeedState:
        """Return the state of the feed after the plan, which takes its head from `head_seq` to `new_head_seq`."""
        group_id = self._submission.group_id
        return await changed_state(
            state,
            head_seq=head_seq,
            new_head_seq=new_head_seq,
            replaced=[
                (record.id, group_id, stated_address(record.address), record.status, record.seq)
                for record in plan.records
            ],
            added=[
                (
                    record.id,
                    group_id,
                    stated_address(_address_after(plan, record, erasing_key)),
                    record.former_kind[0],
                    seq,
                )
                for seq, record in enumerate(plan.records, new_head_seq - len(plan.records) + 1)
            ],
            pause=pause,
        )

    async def _write(self, transaction: Transaction, plan: ReversalPlan, locked: LockedFeed) -> None:
        """Write the reversal in a fixed number of statements, whatever the size of the submission."""
        count, last_seq = len(plan.records), locked.head_seq
        first_seq = last_seq - count + 1
        keys = {**self._batch_keys, "recorded_ms": locked.recorded_ms}
        plan = await self._erase_again(transaction, plan, locked, first_seq=first_seq)
        records: dict[int, tuple[object, ...]] = {}
        async for part in in_slices(plan.records, transaction.pause):
            for record in part:
                records[first_seq + len(records)] = record.reversed_row(locked.recorded_ms)
        addresses = sorted(record.address for record in plan.records)
        await transaction.run(_KEEP_VERSIONS, **keys, addresses=json_text(addresses), superseded="{}")
        await transaction.run(_PUT_RECORDS, **keys, records=json_text(records))
        # An act by link is of one person: nothing new is kept of somebody who was erased.
        is_hidden = self._actor.kind == "link" and any(digest_of(record.address) for record in plan.records)
        source_ip = None if is_hidden else self._actor.source_ip
        await self._record_submission(transaction, count, source_ip, first_seq=first_seq, last_seq=last_seq)
        await transaction.run(
            _COUNT_CHANGES,
            feed_id=self._submission.feed_id,
            day=locked.recorded_ms // DAY_MS,
            counts=json_text(plan.day_counts()),
        )
        await self._record_reversal(transaction, plan.counts, locked.recorded_ms)

    async def _erase_again(
        self, transaction: Transaction, plan: ReversalPlan, locked: LockedFeed, *, first_seq: int
    ) -> ReversalPlan:
        """Erase the records and versions whose address the submission had brought back; return the plan for them."""
        records: list[ReversibleRecord] = []
        noted: dict[int, tuple[str, str | None, int]] = {}
        for seq, record in enumerate(plan.records, first_seq):
            address = _address_after(plan, record, locked.erasing_key)
            if address != record.address:
                where = {"feed_id": self._submission.feed_id, "group_no": self._submission.group_no}
                await transaction.run(_ERASE_RECORD, **where, address=record.address, erased=address)
                await transaction.run(_ERASE_VERSIONS, **where, address=record.address, erased=address)
                noted[seq] = (record.id, digest_of(address), seq)
                record = msgspec.structs.replace(record, address=address, before_source=None)
            records.append(record)
        if noted:
            await transaction.run(
                _NOTE_ERASURES,
                feed_id=self._submission.feed_id,
                kind="again",
                submission_id=self._submission_id,
                at_ms=locked.recorded_ms,
                noted=json_text(noted),
            )
        return msgspec.structs.replace(plan, records=records)

    async def _record_submission(
        self, transaction: Transaction, count: int, source_ip: str | None, *, first_seq: int, last_seq: int
    ) -> None:
        await transaction.run(
            _RECORD_SUBMISSION,
            **self._batch_keys,
            actor_kind=self._actor.kind,
            actor_id=self._actor.id,
            request_id=self._actor.request_id,
            source_ip=source_ip,
            received_ms=self._received_ms,
            received=count,
            created=0,
            updated=count,
            unchanged=0,
            outranked=0,
            rejected=0,
            first_seq=first_seq,
            last_seq=last_seq,
        )

    async def _record_reversal(self, transaction: Transaction, counts: Reversal, reversed_ms: int) -> None:
        submission, of_import = self._submission, self._of_import
        await transaction.run(
            _RECORD_REVERSAL,
            feed_id=submission.feed_id,
            submission_id=submission.submission_id,
            reversed_by=self._submission_id,
            reversed_ms=reversed_ms,
            import_id=None if of_import is None else of_import.import_id,
            part_of=None if of_import is None else of_import.first_submission_id or self._submission_id,
        )
        await trail.record(
            transaction,
            self._actor,
            "submission.reverse",
            submission.submission_id,
            at_ms=reversed_ms,
            organizations=(submission.org_slug,),
            reversed_by=self._submission_id,
            **counts.counts,
        )
        if self._notifies:
            await outbox.add(
                transaction,
                REVERSAL_ENDED,
                submission.submission_id,
                at_ms=reversed_ms,
                organizations=(submission.org_slug,),
                submission_id=submission.submission_id,
                **counts.counts,
            )


def _address_after(plan: ReversalPlan, record: ReversibleRecord, erasing_key: bytes | None) -> str:
    """Return what is stored as the record's address after the reversal."""
    if record.id not in plan.returned or erasing_key is None or digest_of(record.address) is not None:
        return record.address
    return erased_form(erasing_key, record.address)


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
