"""A submission: its sender, time and source, its counts, and every state that it made.

Source: docs/interface.md sections D6 and D11.
"""

from typing import Final

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import load_queries
from stoplist.errors import Missing
from stoplist.organizations.target import ALL_GROUPS, lost_group
from stoplist.unsubscribes.model import CREATED, UPDATED, Result

_QUERIES = load_queries(__package__)
_FIND = _QUERIES["find_submission"]
_NAMES = _QUERIES["names_of_target"]
_RECORDS = _QUERIES["records_of_submission"]
_REVERSALS = _QUERIES["reversals_of"]

BATCH: Final = "batch"
ERASE: Final = "erase"
"""The kind of a submission that erased a person: it can never be reversed."""


class SubmissionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The target, the sender and the counts of a submission; `received_ms` is in milliseconds since 1970 UTC.

    Without a group it is for all groups.
    """

    submission_id: str
    org_slug: str
    channel: str
    group_id: str | None
    group_name: str | None
    actor_kind: str
    actor_id: str
    source_ip: str | None
    received_ms: int
    received: int
    created: int
    updated: int
    unchanged: int
    outranked: int
    rejected: int


class SubmissionDetails(SubmissionSummary, frozen=True, kw_only=True):
    """A submission as staff see it; times are milliseconds since 1970 UTC.

    Its changes are the numbers from `first_seq` to `last_seq` of the feed, both None if it changed nothing. `reversed`
    holds the submissions that reversed it and when; `reverses` is the submission that it reversed itself, `import_id`
    the import of which it stored a part.
    """

    request_id: str | None
    first_seq: int | None
    last_seq: int | None
    reversed: list[tuple[str, int]]
    reverses: str | None
    feed_id: int
    group_no: int
    import_id: str | None
    kind: str = BATCH

    @property
    def changes(self) -> int:
        """Return the number of states that the submission made."""
        return self.created + self.updated


class SubmittedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A state that a submission gave a record, with its result; times are milliseconds since 1970 UTC.

    `is_current`: the record shows it now. `is_confirmed`: it does, and the record was sent again since.
    """

    seq: int
    address: str
    group_no: int
    group_id: str | None
    status: str
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    result: Result
    is_current: bool
    is_confirmed: bool


async def find_submission(actor: Actor, database: Database, submission_id: str) -> SubmissionDetails:
    """Return the submission of that id; raise Missing if the actor sees no organization with it.

    StoreUnavailable if it is of a group that a restore has lost.
    Source: docs/interface.md section D11.
    """
    # Validated first, because not every text is a valid SQL parameter.
    is_id = ids.could_be_id(submission_id, ids.SUBMISSION_ID)
    row = await database.one(_FIND, submission_id=submission_id) if is_id else None
    names = await _names(database, row) if row is not None else None
    if row is None or names is None or not actor.sees(names["slug"]):
        raise Missing(
            "There is no submission of that id. An id is `sub_` and 22 letters and digits, "
            "as in the answer to a batch or the history of a record."
        )
    if row["group_no"] != ALL_GROUPS and names["group_id"] is None:
        raise lost_group()
    reversals = await database.all(_REVERSALS, feed_id=row["feed_id"], submission_id=submission_id)
    return _details(row, names, reversals)


async def find_visible_submission(
    actor: Actor, database: Database, submission: str | SubmissionDetails
) -> SubmissionDetails:
    """Return the submission of that id, or the given details if the actor sees them; Missing as for `find_submission`.

    The reversals are those of the time when the details were read; everything else never changes.
    """
    if isinstance(submission, SubmissionDetails) and actor.sees(submission.org_slug):
        return submission
    submission_id = submission if isinstance(submission, str) else submission.submission_id
    return await find_submission(actor, database, submission_id)


async def records_of_submission(
    actor: Actor,
    database: Database,
    submission: str | SubmissionDetails,
    *,
    after_seq: int | None = None,
    limit: int = 50,
) -> list[SubmittedRecord]:
    """Return the states that the submission made, current or superseded, by number, after `after_seq`.

    A record that the submission changed several times appears as often. `submission` is an id or details found before.
    Missing as for `find_submission`.
    """
    submission = await find_visible_submission(actor, database, submission)
    if submission.first_seq is None:
        return []
    rows = await database.all(
        _RECORDS,
        feed_id=submission.feed_id,
        after=max(submission.first_seq - 1, after_seq or 0),
        last_seq=submission.last_seq,
        most=limit,
    )
    return [_record(row, submission.group_id) for row in rows]


async def _names(database: Database, row: Row) -> Row | None:
    return await database.one(_NAMES, organization_id=row["organization_id"], group_no=row["group_no"])


def _details(row: Row, names: Row, reversals: list[Row]) -> SubmissionDetails:
    submission_id = row["submission_id"]
    reverses = [reversal["submission_id"] for reversal in reversals if reversal["reversed_by"] == submission_id]
    reversed_by = [
        (reversal["reversed_by"], reversal["reversed_ms"])
        for reversal in reversals
        if reversal["submission_id"] == submission_id
    ]
    return SubmissionDetails(
        submission_id=submission_id,
        org_slug=names["slug"],
        channel=row["channel"],
        group_id=names["group_id"],
        group_name=names["name"],
        actor_kind=row["actor_kind"],
        actor_id=row["actor_id"],
        request_id=row["request_id"],
        source_ip=row["source_ip"],
        received_ms=row["received_ms"],
        received=row["received"],
        created=row["created"],
        updated=row["updated"],
        unchanged=row["unchanged"],
        outranked=row["outranked"],
        rejected=row["rejected"],
        first_seq=row["first_seq"],
        last_seq=row["last_seq"],
        reversed=reversed_by,
        reverses=reverses[0] if reverses else None,
        feed_id=row["feed_id"],
        group_no=row["group_no"],
        import_id=row["import_id"],
        kind=row["kind"],
    )


def _record(row: Row, group_id: str | None) -> SubmittedRecord:
    return SubmittedRecord(
        seq=row["seq"],
        address=row["address"],
        group_no=row["group_no"],
        group_id=group_id,
        status=row["status"],
        reason=row["reason"],
        source=row["source"],
        occurred_ms=row["occurred_ms"],
        recorded_ms=row["recorded_ms"],
        result=UPDATED if row["has_earlier"] else CREATED,
        is_current=bool(row["is_current"]),
        is_confirmed=bool(row["is_confirmed"]),
    )
