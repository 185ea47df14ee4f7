"""Lists and settles records of a mirror."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from stoplist_client.errors import NotMirrored
from stoplist_client.mirror.asking import diverged_error
from stoplist_client.mirror.divergence import Divergence
from stoplist_client.mirror.erased import digest_of, stored_address
from stoplist_client.mirror.feeds import Feed, find_feed
from stoplist_client.mirror.file import MirrorFile, transaction
from stoplist_client.model import Record

_RECORDS = """
SELECT id, group_id, address, is_barred, reason, source, occurred_at, recorded_at, seq
FROM records LEFT JOIN groups USING (group_no) WHERE copy_no = ? ORDER BY seq
"""
_MISSING = """
SELECT id, group_id, address, 1, reason, source, occurred_at, recorded_at, seq
FROM missing LEFT JOIN groups USING (group_no) WHERE feed_no = ? ORDER BY occurred_at
"""
# Uses the primary key; group_no is 0 for all groups.
_SETTLE = """
UPDATE missing SET settled_s = ? WHERE feed_no = ? AND address = ? AND occurred_at = ?
  AND group_no = CASE WHEN ? IS NULL THEN 0 ELSE (SELECT group_no FROM groups WHERE group_id = ?) END
"""
_COPY = "SELECT copy_no, diverged FROM feeds WHERE feed_no = ?"
# Uses the primary key of `records`.
_POSITION = """
SELECT copy_no, diverged, coalesce((SELECT max(seq) FROM records WHERE records.copy_no = feeds.copy_no), 0)
FROM feeds WHERE feed_no = ?
"""

_Row = tuple[str, str | None, str, int, str, str | None, str, str, int]


def records(file: MirrorFile, channel: str, org_slug: str | None) -> Iterator[Record]:
    """Yield all records in the order of `seq`, as of the time when the first one is read."""
    with file.own_connection() as connection:
        connection.execute("BEGIN")
        feed = find_feed(connection, channel, org_slug)
        copy_no, diverged = connection.execute(_COPY, (feed.feed_no,)).fetchone()
        if copy_no is None:
            raise NotMirrored("The mirror has not been read to its end yet: synchronise it.")
        if diverged == Divergence.REREADING:
            raise diverged_error(channel)
        yield from _to_records(connection.execute(_RECORDS, (copy_no,)), feed)


def position(file: MirrorFile, channel: str, org_slug: str | None) -> int | None:
    """Return the number of the last change in the copy that answers; None if there is no complete copy yet."""
    with file.pooled_connection() as connection:
        feed = find_feed(connection, channel, org_slug)
        copy_no, diverged, seq = connection.execute(_POSITION, (feed.feed_no,)).fetchone()
    if diverged == Divergence.REREADING:
        raise diverged_error(channel)
    return None if copy_no is None else int(seq)


def missing(file: MirrorFile, channel: str, org_slug: str | None) -> Iterator[Record]:
    """Yield all opt-outs that the service lost, the earliest first."""
    with file.own_connection() as connection:
        connection.execute("BEGIN")
        feed = find_feed(connection, channel, org_slug)
        yield from _to_records(connection.execute(_MISSING, (feed.feed_no,)), feed)


def settle(
    file: MirrorFile, channel: str, org_slug: str | None, submitted: Iterable[Record], *, now_s: Callable[[], float]
) -> None:
    """Let the service decide about these opt-outs, once the feed has been read to its end by a later request."""
    with file.pooled_connection() as connection:
        feed = find_feed(connection, channel, org_slug)
        rows = [
            (
                now_s(),
                feed.feed_no,
                stored_address(record.address, record.address_digest),
                _text(record.occurred_at),
                record.group_id,
                record.group_id,
            )
            for record in submitted
        ]
        with transaction(connection):
            connection.executemany(_SETTLE, rows)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _to_records(rows: sqlite3.Cursor, feed: Feed) -> Iterator[Record]:
    row: _Row
    for row in rows:
        record_id, group_id, address, is_barred, reason, source, occurred_at, recorded_at, seq = row
        yield Record(
            id=record_id,
            org_slug=feed.org_slug,
            group_id=group_id,
            address=address if digest_of(address) is None else None,
            address_digest=digest_of(address),
            status="unsubscribed" if is_barred else "resubscribed",
            reason=reason,
            source=source,
            occurred_at=datetime.fromisoformat(occurred_at),
            recorded_at=datetime.fromisoformat(recorded_at),
            seq=seq,
        )
