"""What of a submission can be taken back, and to what each record would return: read, or counted, in one statement.

What a submission did is found by number: the changes of a batch are numbered without a gap, and no other's come
between. Source: docs/interface.md section D11, Reversing.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from stoplist.db import Row
from stoplist.db.query import Query, load_queries
from stoplist.records.submissions import SubmissionDetails
from stoplist.unsubscribes.model import RESUBSCRIBED, UNSUBSCRIBED

_QUERIES = load_queries(__package__)
_COUNT_REVERSIBLE = _QUERIES["count_reversible"]
_REVERSIBLE = _QUERIES["reversible"]

CORRECTION: Final = "correction"

ReadRow = Callable[..., Awaitable[Row | None]]
"""Reads a row, in a transaction or by itself."""


class Reversal(msgspec.Struct, frozen=True, kw_only=True):
    """How many records a reversal takes back, and how many it leaves out.

    `restored` to what they were before, `corrected` where there was nothing before. Left out are the `superseded`,
    where a later change stands, and the `confirmed`, which were sent again since. `taken_back` were so by an earlier
    reversal. `submission_id` names the submission that the reversal is itself; None where nothing was changed.
    """

    restored: int = 0
    corrected: int = 0
    superseded: int = 0
    confirmed: int = 0
    taken_back: int = 0
    submission_id: str | None = None

    @property
    def changes(self) -> int:
        """How many records it changes."""
        return self.restored + self.corrected

    @property
    def left_out(self) -> int:
        """How many it does not change, although the submission created or updated them."""
        return self.superseded + self.confirmed

    def agrees_with(self, other: "Reversal") -> bool:
        """Whether both would change as many records, and leave out as many."""
        return self._counts == other._counts

    @property
    def _counts(self) -> tuple[int, ...]:
        return self.restored, self.corrected, self.superseded, self.confirmed


class ReversibleRecord(msgspec.Struct, array_like=True, gc=False):
    """A record that stands on the submission, and the state before it. Fields in the order of the statement's."""

    seq: int
    address: str
    id: str
    status: str
    reason: str
    is_confirmed: int
    before_status: str | None
    before_reason: str | None
    before_source: str | None
    before_occurred_ms: int | None
    before_latest_act_ms: int | None

    @property
    def shows(self) -> tuple[str, str]:
        """The status and reason that it shows."""
        return self.status, self.reason

    @property
    def returns_to(self) -> tuple[str, str]:
        """The status and reason that it showed before; a correction, where it was not there."""
        if self.before_status is None or self.before_reason is None:
            return RESUBSCRIBED, CORRECTION
        return self.before_status, self.before_reason

    def returned(self, now_ms: int) -> tuple[object, ...]:
        """The record as it is taken back, in the order in which `put_records` takes it."""
        status, reason = self.returns_to
        occurred_ms = now_ms if self.before_occurred_ms is None else self.before_occurred_ms
        latest_act_ms = self._latest_act_ms(status, reason, occurred_ms)
        return self.address, self.id, status, reason, self.before_source, occurred_ms, latest_act_ms, 0

    def _latest_act_ms(self, status: str, reason: str, occurred_ms: int) -> int | None:
        if reason == CORRECTION:
            # Be it an earlier one, it is nobody's act: an opt-out of any time must still win.
            return None
        if status == UNSUBSCRIBED and self.before_latest_act_ms is not None:
            # Somebody who opted out a second time did so: a consent from between the two must not win.
            return max(occurred_ms, self.before_latest_act_ms)
        return occurred_ms


class ReversalPlan(msgspec.Struct, frozen=True):
    """The records to take back, in the order in which the submission left them, and all the counts."""

    standing: list[ReversibleRecord]
    counts: Reversal

    def day_counts(self) -> dict[int, tuple[object, ...]]:
        """By status and reason: how many records take it, and by how many those that show it grow."""
        taken = Counter(record.returns_to for record in self.standing)
        left = Counter(record.shows for record in self.standing)
        return {at: (*kind, taken[kind], taken[kind] - left[kind]) for at, kind in enumerate(sorted(taken | left))}


_RECORDS = msgspec.json.Decoder(list[ReversibleRecord])


async def look(one: ReadRow, submission: SubmissionDetails) -> ReversalPlan:
    """What there is to take back at one moment. `one` reads a row, in a transaction or by itself."""
    if submission.first_seq is None:
        return ReversalPlan([], Reversal())
    row = await _row(one, _REVERSIBLE, submission)
    records = [] if row["standing"] is None else _RECORDS.decode(row["standing"])
    standing = sorted((record for record in records if not record.is_confirmed), key=lambda record: record.seq)
    restored = sum(record.before_status is not None for record in standing)
    confirmed = len(records) - len(standing)
    return ReversalPlan(standing, _counts(row, standing=len(records), confirmed=confirmed, restored=restored))


async def count_reversible(one: ReadRow, submission: SubmissionDetails) -> Reversal:
    """The counts of `look`, without the records."""
    if submission.first_seq is None:
        return Reversal()
    row = await _row(one, _COUNT_REVERSIBLE, submission, created=submission.created, updated=submission.updated)
    return _counts(row, standing=row["standing"], confirmed=row["confirmed"], restored=row["restored"])


async def _row(one: ReadRow, query: Query, submission: SubmissionDetails, **more: Any) -> Row:
    row = await one(
        query,
        feed_id=submission.feed_id,
        submission_id=submission.submission_id,
        first_seq=submission.first_seq,
        last_seq=submission.last_seq,
        **more,
    )
    if row is None:
        raise RuntimeError("a count without a row")
    return row


def _counts(row: Row, *, standing: int, confirmed: int, restored: int) -> Reversal:
    taken_back = int(row["taken_back"])
    return Reversal(
        restored=restored,
        corrected=standing - confirmed - restored,
        superseded=row["superseded"] - taken_back,
        confirmed=confirmed,
        taken_back=taken_back,
    )
