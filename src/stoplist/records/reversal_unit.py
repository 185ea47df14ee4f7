"""The unit of work of a reversal: the feed is locked, the plan read again if anything was written since, and stored.

Source: docs/interface.md section D11, Reversing.
"""

from collections.abc import Awaitable, Callable

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused
from stoplist.notices import outbox
from stoplist.notices.model import REVERSAL_ENDED
from stoplist.records.reversal_plan import Reversal, ReversalPlan, ReversibleRecord, read_plan
from stoplist.records.submissions import SubmissionDetails
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.erased import digest_of, erased_form, stated_address
from stoplist.unsubscribes.feed import Feed
from stoplist.unsubscribes.feed_lock import LockedFeed, lock_feed, set_state
from stoplist.unsubscribes.feed_state import FeedState, changed_state
from stoplist.unsubscribes.model import sender_key
from stoplist.unsubscribes.record_writer import count_changes, note_erasures

_QUERIES = load_queries(__package__)
_FEED_QUERIES = load_queries("stoplist.unsubscribes")
_ERASE_RECORD = _QUERIES["erase_record_again"]
_ERASE_VERSIONS = _QUERIES["erase_versions_again"]
_GIVE_BACK_NUMBERS = _FEED_QUERIES["give_back_numbers"]
_KEEP_VERSIONS = _FEED_QUERIES["keep_versions"]
_PUT_RECORDS = _FEED_QUERIES["put_records_with_audit"]
_RECORD_REVERSAL = _QUERIES["record_reversal"]
_RECORD_SUBMISSION = _FEED_QUERIES["record_submission"]


class ReversedImport(msgspec.Struct, frozen=True):
    """An import that is reversed part by part, and the first submission of that reversal, if there is one."""

    import_id: str
    first_submission_id: str | None = None


class ReversalUnit:
    """One reversal: planned without a lock, and stored behind the lock."""

    def __init__(
        self,
        actor: Actor,
        submission: SubmissionDetails,
        plan: ReversalPlan,
        *,
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
        # Records only ever leave a submission, so behind the lock there are no more.
        max_changes = len(self._plan.records)
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
                require_expected(self._expected, plan.counts)
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
        feed_id = self._submission.feed_id
        await count_changes(transaction, feed_id, plan.day_counts(), recorded_ms=locked.recorded_ms)
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
            await note_erasures(
                transaction,
                self._submission.feed_id,
                "again",
                self._submission_id,
                noted,
                at_ms=locked.recorded_ms,
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
            corrected=counts.corrected,
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


def require_expected(expected: Reversal | None, counts: Reversal) -> None:
    """Raise Refused if the counts that the actor was shown no longer hold."""
    if expected is not None and not counts.agrees_with(expected):
        raise Refused(
            "Some of its records were changed or sent again meanwhile, so the counts you were shown no longer hold. "
            "Nothing was changed. Check the new counts and confirm again."
        )


def _address_after(plan: ReversalPlan, record: ReversibleRecord, erasing_key: bytes | None) -> str:
    """Return what is stored as the record's address after the reversal."""
    if record.id not in plan.returned or erasing_key is None or digest_of(record.address) is not None:
        return record.address
    return erased_form(erasing_key, record.address)
