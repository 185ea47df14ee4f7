"""The changes that a reversal of a submission makes, and the former state of each record.

The changes of a batch are numbered without a gap and without those of others in between, so one statement over that
range reads or counts them. Source: docs/interface.md section D11, Reversing.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from stoplist.db import Row
from stoplist.db.query import Query, load_queries
from stoplist.records.submissions import SubmissionDetails
from stoplist.unsubscribes.decision import CONFIRMED, REPEATED_BY_LINK
from stoplist.unsubscribes.model import RESUBSCRIBED, UNSUBSCRIBED

_QUERIES = load_queries(__package__)
_COUNT_REVERSIBLE = _QUERIES["count_reversible"]
_REVERSIBLE = _QUERIES["reversible"]
_REVERSIBLE_ERASED = _QUERIES["reversible_erased"]

CORRECTION: Final = "correction"

ReadRow = Callable[..., Awaitable[Row | None]]
"""Reads a row, in a transaction or without."""


class Reversal(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of records that a reversal changes and leaves out.

    `restored` records return to their former state; `corrected` ones had none. Left out are the `superseded` ones,
    which have a later change, and the `confirmed` ones, which were sent again since. `taken_back` were reversed
    earlier. `submission_id` is the id of the reversal as a submission; None if nothing was changed.
    """

    restored: int = 0
    corrected: int = 0
    superseded: int = 0
    confirmed: int = 0
    taken_back: int = 0
    submission_id: str | None = None

    def __add__(self, other: "Reversal") -> "Reversal":
        """Return the counts of both together, as of several submissions."""
        return Reversal(
            restored=self.restored + other.restored,
            corrected=self.corrected + other.corrected,
            superseded=self.superseded + other.superseded,
            confirmed=self.confirmed + other.confirmed,
            taken_back=self.taken_back + other.taken_back,
        )

    @property
    def counts(self) -> dict[str, int]:
        """Return all counts by name, for the audit and notices."""
        return {name: getattr(self, name) for name in ("restored", "corrected", "superseded", "confirmed")}

    @property
    def changes(self) -> int:
        """Return the number of records that the reversal changes."""
        return self.restored + self.corrected

    @property
    def left_out(self) -> int:
        """Return the number of records that the submission created or updated and the reversal does not change."""
        return self.superseded + self.confirmed

    def agrees_with(self, other: "Reversal") -> bool:
        """Return whether both would change, and leave out, the same numbers of records."""
        return self._counts == other._counts

    @property
    def _counts(self) -> tuple[int, ...]:
        return self.restored, self.corrected, self.superseded, self.confirmed


class ReversibleRecord(msgspec.Struct, array_like=True, gc=False):
    """A record whose present state comes from the submission, with its former state, in the order of the statement."""

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

    def is_confirmed_by_others(self, also_confirmed: int) -> bool:
        """Return whether the record was sent again since, in a way that keeps it from being reversed."""
        return self.is_confirmed in (CONFIRMED, also_confirmed)

    @property
    def current_kind(self) -> tuple[str, str]:
        """Return the present status and reason."""
        return self.status, self.reason

    @property
    def former_kind(self) -> tuple[str, str]:
        """Return the former status and reason; a correction if the record did not exist before."""
        if self.before_status is None or self.before_reason is None:
            return RESUBSCRIBED, CORRECTION
        return self.before_status, self.before_reason

    def reversed_row(self, now_ms: int) -> tuple[object, ...]:
        """Return the reversed record, in the order in which `put_records` takes it."""
        status, reason = self.former_kind
        occurred_ms = now_ms if self.before_occurred_ms is None else self.before_occurred_ms
        latest_act_ms = self._latest_act_ms(status, reason, occurred_ms)
        return self.address, self.id, status, reason, self.before_source, occurred_ms, latest_act_ms, 0

    def _latest_act_ms(self, status: str, reason: str, occurred_ms: int) -> int | None:
        if reason == CORRECTION:
            # A correction, even an earlier one, is nobody's act: an opt-out of any time must still win.
            return None
        if status == UNSUBSCRIBED and self.before_latest_act_ms is not None:
            # The person opted out twice: a consent from between the two must not win.
            return max(occurred_ms, self.before_latest_act_ms)
        return occurred_ms


class ReversalPlan(msgspec.Struct, frozen=True):
    """The records to reverse, in the order in which they last changed, and all counts.

    `returned` are the ids of the records whose address the submission brought back.
    """

    records: list[ReversibleRecord]
    counts: Reversal
    returned: frozenset[str] = frozenset()

    def day_counts(self) -> dict[int, tuple[object, ...]]:
        """Return rows for `count_changes`: status, reason, number of changes, growth of the records showing it."""
        taken_counts = Counter(record.former_kind for record in self.records)
        left_counts = Counter(record.current_kind for record in self.records)
        return {
            at: (*kind, taken_counts[kind], taken_counts[kind] - left_counts[kind])
            for at, kind in enumerate(sorted(taken_counts | left_counts))
        }


_RECORDS = msgspec.json.Decoder(list[ReversibleRecord])


async def read_plan(
    read_row: ReadRow, submission: SubmissionDetails, *, also_confirmed: int = REPEATED_BY_LINK
) -> ReversalPlan:
    """Return what can be reversed at one moment.

    `also_confirmed` is REPEATED_BY_LINK, or CONFIRMED where what the same link key repeated is no confirmation.
    """
    if submission.first_seq is None:
        return ReversalPlan([], Reversal())
    row = await _row(read_row, _REVERSIBLE, submission)
    erased = await _read_erased(read_row, submission)
    records = [] if row["standing"] is None else _RECORDS.decode(row["standing"])
    records += erased.records
    reversible = sorted(
        (record for record in records if not record.is_confirmed_by_others(also_confirmed)),
        key=lambda record: record.seq,
    )
    restored = sum(record.before_status is not None for record in reversible)
    confirmed = len(records) - len(reversible)
    counts = _counts(row, erased, standing=len(records), confirmed=confirmed, restored=restored)
    return ReversalPlan(reversible, counts, erased.returned)


async def count_reversible(
    read_row: ReadRow, submission: SubmissionDetails, *, also_confirmed: int = REPEATED_BY_LINK
) -> Reversal:
    """Return the counts of `read_plan`, without the records."""
    if submission.first_seq is None:
        return Reversal()
    row = await _row(
        read_row,
        _COUNT_REVERSIBLE,
        submission,
        created=submission.created,
        updated=submission.updated,
        also_confirmed=also_confirmed,
    )
    erased = await _read_erased(read_row, submission)
    confirmed = [record for record in erased.records if record.is_confirmed_by_others(also_confirmed)]
    restored = [record for record in erased.records if record not in confirmed and record.before_status is not None]
    return _counts(
        row,
        erased,
        standing=row["standing"] + len(erased.records),
        confirmed=row["confirmed"] + len(confirmed),
        restored=row["restored"] + len(restored),
    )


class _ErasedSince(NamedTuple):
    """The records that still stand on a submission, though they were erased since; and those that it brought back."""

    records: list[ReversibleRecord]
    returned: frozenset[str]


async def _read_erased(read_row: ReadRow, submission: SubmissionDetails) -> _ErasedSince:
    row = await _row(read_row, _REVERSIBLE_ERASED, submission)
    records = [] if row["standing"] is None else _RECORDS.decode(row["standing"])
    returned: list[str] = [] if row["returned"] is None else msgspec.json.decode(row["returned"])
    return _ErasedSince(records, frozenset(returned))


async def _row(read_row: ReadRow, query: Query, submission: SubmissionDetails, **more: Any) -> Row:
    row = await read_row(
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


def _counts(row: Row, erased: _ErasedSince, *, standing: int, confirmed: int, restored: int) -> Reversal:
    taken_back = int(row["taken_back"])
    return Reversal(
        restored=restored,
        corrected=standing - confirmed - restored,
        superseded=row["superseded"] - len(erased.records) - taken_back,
        confirmed=confirmed,
        taken_back=taken_back,
    )
