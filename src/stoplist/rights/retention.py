"""Deletes the history and the audit entries that a deployment no longer keeps, in small steps.

The rule for reversals is in stoplist.records.reversal: it holds whether or not the deletion has happened.
Source: docs/interface.md section D13, Retention.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from stoplist.clock import DAY_MS
from stoplist.db import Database, Transaction
from stoplist.db.query import Query, json_text, load_queries
from stoplist.rights.erasure_unit import ERASED_ACTION

_QUERIES = load_queries(__package__)
_AUDIT_ENTRIES = _QUERIES["old_audit_entries"]
_FEEDS = _QUERIES["feeds_to_clean"]
_MAY_DELETE = _QUERIES["may_delete_old"]
_MOVED_ENTRIES = _QUERIES["delete_moved_entries"]
_POSITIONS = _QUERIES["delete_positions"]
_READERS = _QUERIES["readers_to_clean"]
_SUBMISSIONS = _QUERIES["old_submissions"]
_VERSIONS = _QUERIES["superseded_versions"]
_DELETE_ENTRIES = [_QUERIES["delete_audit_organizations"], _QUERIES["delete_audit_entries"]]
_DELETE_SUBMISSIONS = [
    _QUERIES[name] for name in ("delete_submissions", "delete_import_parts", "delete_reversals", "delete_reversals_by")
]
_DELETE_VERSIONS = [_QUERIES["delete_versions"], _QUERIES["note_deleted_history"]]

STEP_ROWS = 500
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
# A reversal that began in time, and clocks of other hosts, must still find the states that they need.
_GRACE_MS = _HOUR_MS


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The times for which history and audit are kept; 0 days are for ever.

    `propagation_hours` is the propagation limit.
    """

    history_days: int = 0
    audit_days: int = 0
    propagation_hours: int = 48

    def history_until_ms(self, now_ms: int) -> int | None:
        """Return the time before which superseded versions are deleted, or None for never.

        A version is kept for the propagation limit at least: it may be the change that a key still lacks.
        """
        if not self.history_days:
            return None
        return now_ms - max(self.history_days * DAY_MS, self.propagation_hours * _HOUR_MS) - _GRACE_MS

    def audit_until_ms(self, now_ms: int) -> int | None:
        """Return the time before which audit entries are deleted, or None for never."""
        return now_ms - self.audit_days * DAY_MS if self.audit_days else None


async def delete_old(database: Database, retention: Retention, now_ms: int) -> AsyncIterator[int]:
    """Delete what is no longer kept, and yield after each step the number of versions, submissions and so on deleted.

    A step reads or deletes at most STEP_ROWS rows, and leaves what it found to another process that is deleting. May be
    abandoned after any step, and repeated.
    """
    audit_until_ms, history_until_ms = retention.audit_until_ms(now_ms), retention.history_until_ms(now_ms)
    if audit_until_ms is not None:
        async for deleted in _delete_audit(database, audit_until_ms):
            yield deleted
        async for deleted in _forget_moved(database, audit_until_ms):
            yield deleted
    if history_until_ms is None:
        return
    last = -1
    while feeds := await database.all(_FEEDS, after=last, most=STEP_ROWS):
        for feed in feeds:
            # A submission goes once its states are gone, so they go first.
            for delete in (_delete_versions, _delete_submissions, _delete_positions):
                async for deleted in delete(database, feed["feed_id"], history_until_ms):
                    yield deleted
        last = feeds[-1]["feed_id"]


async def _delete_versions(database: Database, feed_id: int, until_ms: int) -> AsyncIterator[int]:
    last = 0
    while rows := await database.all(_VERSIONS, feed_id=feed_id, after=last, most=STEP_ROWS):
        old = [row["seq"] for row in rows if row["superseded_ms"] is not None and row["superseded_ms"] < until_ms]
        yield await _delete(database, _DELETE_VERSIONS, old, feed_id=feed_id, seqs=json_text(old), until_ms=until_ms)
        # Times of a feed never fall: what follows was recorded, and so superseded, later.
        if rows[-1]["recorded_ms"] >= until_ms:
            return
        last = rows[-1]["seq"]


async def _delete_submissions(database: Database, feed_id: int, until_ms: int) -> AsyncIterator[int]:
    last = ""
    while rows := await database.all(_SUBMISSIONS, feed_id=feed_id, after=last, most=STEP_ROWS):
        old = [row["submission_id"] for row in rows if row["received_ms"] < until_ms and row["standing_seq"] is None]
        yield await _delete(database, _DELETE_SUBMISSIONS, old, feed_id=feed_id, submissions=json_text(old))
        last = rows[-1]["submission_id"]


async def _delete_positions(database: Database, feed_id: int, until_ms: int) -> AsyncIterator[int]:
    last = ("", -1)
    while readers := await database.all(
        _READERS, feed_id=feed_id, after_client=last[0], after_group=last[1], most=STEP_ROWS
    ):
        for reader in readers:
            last = (reader["client_id"], reader["group_no"])
            values = {"feed_id": feed_id, "client_id": last[0], "group_no": last[1]}
            before = until_ms // _MINUTE_MS
            while deleted := await _delete(database, [_POSITIONS], [reader], **values, before=before, most=STEP_ROWS):
                yield deleted
        yield 0


async def _delete_audit(database: Database, until_ms: int) -> AsyncIterator[int]:
    last = (-1, -1)
    while rows := await database.all(
        _AUDIT_ENTRIES, until_ms=until_ms, after_ms=last[0], after_id=last[1], most=STEP_ROWS
    ):
        old = [row["audit_id"] for row in rows if row["action"] != ERASED_ACTION]
        yield await _delete(database, _DELETE_ENTRIES, old, entries=json_text(old))
        last = (rows[-1]["at_ms"], rows[-1]["audit_id"])


async def _forget_moved(database: Database, until_ms: int) -> AsyncIterator[int]:
    """Forget which entries of the audit were moved there from outboxes, once they are gone."""
    while deleted := await _delete(database, [_MOVED_ENTRIES], [until_ms], until_ms=until_ms, most=STEP_ROWS):
        yield deleted


async def _delete(database: Database, statements: Sequence[Query], old: Sequence[Any], **values: Any) -> int:
    """Run the statements in one transaction, if there is anything `old`; return the most that one of them deleted.

    They are about the feed of the value `feed_id`, or without one about the audit.
    """
    if not old:
        return 0

    async def delete(transaction: Transaction) -> int:
        row = await transaction.one(_MAY_DELETE)
        if row is None or not row["may"]:
            return 0
        return max([await transaction.run(statement, **values) for statement in statements])

    return await database.write(delete, feed_id=values.get("feed_id"))
