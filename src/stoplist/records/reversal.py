"""Reverse a submission: each record returns to its former state, as a new change in the feed. Nothing is deleted.

Source: docs/interface.md section D11, Reversing.
"""

from typing import Literal

import msgspec

from stoplist.actor import Actor
from stoplist.clock import DAY_MS
from stoplist.db import HEAVY_ROWS, Database, Row
from stoplist.db.query import load_queries
from stoplist.errors import Missing, Refused
from stoplist.records.reversal_plan import ReadRow, Reversal, count_reversible, read_plan
from stoplist.records.reversal_unit import ReversalUnit, ReversedImport, require_expected
from stoplist.records.submissions import ERASE, SubmissionDetails, find_visible_submission
from stoplist.unsubscribes.decision import REPEATED_BY_LINK
from stoplist.unsubscribes.feed import find_feed_by_id
from stoplist.unsubscribes.model import OptOutStores

_LEFT_OUT = load_queries(__package__)["left_out_of_reversal"]


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
    require_expected(expected, plan.counts)
    if feed is None or not plan.records:
        return plan.counts
    unit = ReversalUnit(
        actor,
        submission,
        plan,
        expected=expected,
        clock=stores.clock,
        also_confirmed=also_confirmed,
        notifies=notifies,
        of_import=of_import,
    )
    return await unit.store(stores.database, seen=feed)


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


async def _require_administrator(
    actor: Actor, stores: OptOutStores, submission: str | SubmissionDetails
) -> SubmissionDetails:
    details = await find_visible_submission(actor, stores.database, submission)
    actor.require_administrator()
    return details


def _row_reader(database: Database, submission: SubmissionDetails) -> ReadRow:
    return database.one_large if submission.changes > HEAVY_ROWS else database.one


def _left_out(row: Row) -> LeftOut:
    return LeftOut(
        seq=row["seq"],
        address=row["address"],
        why="confirmed" if row["is_confirmed"] else "superseded",
        status=row["now_status"],
        reason=row["now_reason"],
        now_seq=row["now_seq"],
    )
