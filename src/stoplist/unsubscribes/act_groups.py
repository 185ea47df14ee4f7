"""Stores acts of single people in groups: those that arrive while others are being committed share one transaction.

For opt-out links. Each act has a submission of its own, so that history, Undo and reversals know it, but locks, reads,
counts and the state of the feed take a statement for the group. Source: docs/interface.md section D15; figures:
docs/decisions/0026-clicks.md.
"""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import astuple

from stoplist import ids
from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.organizations.target import ALL_GROUPS, Target
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.decision import BatchDecision, was_just_clicked
from stoplist.unsubscribes.feed import UNOPENED, Feed, open_feed
from stoplist.unsubscribes.feed_lock import LockedFeed
from stoplist.unsubscribes.feed_state import EMPTY, FeedState
from stoplist.unsubscribes.items import Act, read_act
from stoplist.unsubscribes.model import CREATED, UNCHANGED, UPDATED, Item, sender_key
from stoplist.unsubscribes.person_records import PersonRecords, find_person_records
from stoplist.unsubscribes.record_reader import FoundRecords
from stoplist.unsubscribes.record_writer import count_changes, touch_records
from stoplist.unsubscribes.storing import decide_batch, lock_and_decide, state_after_seen
from stoplist.unsubscribes.validated_batch import ValidatedBatch

_QUERIES = load_queries(__package__)
_KEEP_VERSIONS = _QUERIES["keep_versions"]
_PUT_RECORDS = _QUERIES["put_records_of_acts"]
_RECORD_SUBMISSIONS = _QUERIES["record_submissions"]

# About a millisecond of work, for which everything else waits on SQLite.
_MAX_ACTS = 32
# No feed has such a number of writes: all records are read behind the lock.
_NEVER_SEEN = UNOPENED._replace(writes=-1)


class SubmittedAct(NamedTuple):
    """The result of an act. `submission_id` is None if nothing was stored; `is_changed`: the record has a new state."""

    submission_id: str | None
    is_changed: bool


_NOTHING = SubmittedAct(None, is_changed=False)


class ActGroups:
    """The opt-outs of single people that wait to be stored in this process."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._open: dict[_GroupKey, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, actor: Actor, channel: Channel, target: Target, item: Item) -> SubmittedAct:
        """Store an opt-out of a person, durably; may be repeated.

        For an actor of the kind `link` and a target that the caller has authorized; without a group the act is for all
        groups.
        """
        now_ms = self._clock.now_ms()
        act = read_act(item, channel, now_ms)
        group_no, group_id = (ALL_GROUPS, None) if target.group is None else target.group
        key = _GroupKey(feed_id(target.organization_id, channel), group_no, group_id, actor.id)
        seen = None
        # Where others wait already, all records of the group are read behind the lock, and nothing is read before.
        if key not in self._open:
            seen = await find_person_records(self._database, key.feed_id, act.address)
            record, sender_mark = seen.records.get(group_no), ids.submission_mark(sender_key(actor))
            if record is not None and was_just_clicked(record, now_ms=now_ms, sender_mark=sender_mark):
                return _NOTHING
            if seen.feed is None:
                await open_feed(self._database, target, channel)
        return await self._join(key, _WaitingAct(actor, act, seen, asyncio.get_running_loop().create_future()))

    def _join(self, key: "_GroupKey", waiting: "_WaitingAct") -> "asyncio.Future[SubmittedAct]":
        group = self._open.get(key)
        if group is None or len(group.acts) >= _MAX_ACTS:
            group = self._open[key] = _Group(key, [])
            task = asyncio.create_task(self._store(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        group.acts.append(waiting)
        return waiting.answer

    async def _store(self, group: "_Group") -> None:
        try:
            results = await self._database.write(lambda unit: self._run(unit, group), queue_key=group.key.feed_id)
        except Exception as failure:
            self._close(group)
            for waiting in group.acts:
                if not waiting.answer.done():
                    waiting.answer.set_exception(failure)
            return
        for waiting, result in zip(group.acts, results, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(result)

    async def _run(self, transaction: Transaction, group: "_Group") -> list[SubmittedAct]:
        """Store a group in a transaction. May be called again after a rollback."""
        self._close(group)
        first = group.first_decision
        if first is None:
            first = group.first_decision = await _decide(group, transaction, now_ms=self._clock.now_ms())
        decision, locked = await lock_and_decide(
            transaction, first.batch, first.decision, seen=first.seen, state=first.state, clock=self._clock
        )
        if not decision.has_writes:
            return [_NOTHING] * len(group.acts)
        return await _write(transaction, group, first.batch, decision, locked)

    def _close(self, group: "_Group") -> None:
        """Let no more acts join the group."""
        if self._open.get(group.key) is group:
            del self._open[group.key]


class _GroupKey(NamedTuple):
    """The acts of a group share these."""

    feed_id: int
    group_no: int
    group_id: str | None
    link_key_id: str


class _WaitingAct(NamedTuple):
    """An act, and the records of its person before the group is stored; None if they were not read."""

    actor: Actor
    act: Act
    seen: PersonRecords | None
    answer: "asyncio.Future[SubmittedAct]"


class _FirstDecision(NamedTuple):
    """The decision on the records that were seen: it holds if nobody has written to the feed since `seen`."""

    batch: ValidatedBatch
    decision: BatchDecision
    seen: Feed
    state: FeedState


@dataclass
class _Group:
    key: _GroupKey
    acts: list[_WaitingAct]
    first_decision: _FirstDecision | None = None


async def _decide(group: _Group, transaction: Transaction, *, now_ms: int) -> _FirstDecision:
    key, acts = group.key, [waiting.act for waiting in group.acts]
    batch = ValidatedBatch(group.acts[0].actor, key.feed_id, key.group_no, key.group_id, acts, len(acts), now_ms)
    found = FoundRecords({}, {})
    feeds: dict[int, Feed] = {}
    for _, act, seen, _ in group.acts:
        if seen is None:
            feeds[_NEVER_SEEN.writes] = _NEVER_SEEN
            continue
        feed = seen.feed or UNOPENED
        feeds[feed.writes] = feed
        if key.group_no in seen.records:
            found.by_address[act.address] = seen.records[key.group_no]
        if seen.erased_form is not None:
            found.erased[act.address] = seen.erased_form
    decision = await decide_batch(batch, found, transaction.pause)
    if len(feeds) > 1 or _NEVER_SEEN.writes in feeds:
        return _FirstDecision(batch, decision, _NEVER_SEEN, EMPTY)
    (feed,) = feeds.values()
    return _FirstDecision(batch, decision, feed, await state_after_seen(batch, decision, feed, transaction.pause))


async def _write(
    transaction: Transaction, group: _Group, batch: ValidatedBatch, decision: BatchDecision, locked: LockedFeed
) -> list[SubmittedAct]:
    """Write the decision in a fixed number of statements; return the result of each act."""
    first_seq = locked.head_seq - len(decision.changes) + 1
    results = _results(batch, decision)
    feed_keys = {"feed_id": batch.feed_id, "group_no": batch.group_no}
    if decision.updated:
        await transaction.run(
            _KEEP_VERSIONS,
            **feed_keys,
            recorded_ms=locked.recorded_ms,
            submission_id="",  # of states that one batch both made and superseded: opt-outs alone supersede none
            addresses=json_text(sorted(record.address for record in decision.updated)),
            superseded="{}",
        )
    if decision.changes:
        ids_of_changes = [result.submission_id for result in results if result.is_changed]
        rows = {
            seq: (*astuple(change), submission_id)
            for seq, (change, submission_id) in enumerate(zip(decision.changes, ids_of_changes, strict=True), first_seq)
        }
        await transaction.run(_PUT_RECORDS, **feed_keys, recorded_ms=locked.recorded_ms, records=json_text(rows))
    await touch_records(transaction, decision, feed_keys)
    await transaction.run(
        _RECORD_SUBMISSIONS,
        **feed_keys,
        actor_kind=batch.actor.kind,
        actor_id=batch.actor.id,
        received_ms=batch.now_ms,
        submissions=json_text(dict(enumerate(_submissions(group, decision, results, first_seq)))),
    )
    if decision.changes:
        await count_changes(transaction, batch.feed_id, decision.day_counts(), recorded_ms=locked.recorded_ms)
    return results


def _results(batch: ValidatedBatch, decision: BatchDecision) -> list[SubmittedAct]:
    """Return the result of each act, with a new submission for each that is stored: of one person's acts the first."""
    new_ids = iter(ids.new_submission_ids(batch.sender, len(batch.acts)))
    touched = {record.id for record in decision.touched}
    results: list[SubmittedAct] = []
    for item in decision.results:
        is_changed = item.result in (CREATED, UPDATED)
        if not is_changed and item.id not in touched:
            results.append(_NOTHING)
            continue
        touched.discard(item.id)
        results.append(SubmittedAct(next(new_ids), is_changed))
    return results


def _submissions(
    group: _Group, decision: BatchDecision, results: list[SubmittedAct], first_seq: int
) -> list[tuple[object, ...]]:
    """Return the rows of the submissions, in the order of the columns of `record_submissions`."""
    rows: list[tuple[object, ...]] = []
    seq = first_seq
    for (actor, act, _, _), item, (submission_id, is_changed) in zip(
        group.acts, decision.results, results, strict=True
    ):
        if submission_id is None:
            continue
        # An erasure finds the acts that made a state of the person's records, and no others.
        is_kept = is_changed and not decision.is_of_erased(act.address)
        source_ip = actor.source_ip if is_kept else None
        counts = [int(item.result == result) for result in (CREATED, UPDATED, UNCHANGED)]
        rows.append((submission_id, actor.request_id, source_ip, *counts, seq if is_changed else None))
        seq += is_changed
    return rows
