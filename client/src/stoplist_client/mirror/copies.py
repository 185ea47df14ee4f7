"""Applies pages to a copy: appended during the first read, then sorted once, and later changed in place.

All functions run inside a transaction of the caller. Reasons: docs/decisions/0015-client.md.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from stoplist_client.mirror import erased
from stoplist_client.mirror.divergence import Divergence
from stoplist_client.mirror.feeds import Feed
from stoplist_client.mirror.figures import figures_of_copy, figures_of_keys, keep_figures, kept_figures
from stoplist_client.mirror.reading import Change, Position

Row = tuple[int, int, str, int, str, bool, str, str | None, str, str]

_APPEND = """
INSERT OR REPLACE INTO records
  (copy_no, seq, address, group_no, id, is_barred, reason, source, occurred_at, recorded_at) VALUES
"""
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# One statement of this many rows takes a third less time than single rows, and releases the interpreter lock meanwhile.
_ROWS_PER_STATEMENT = 500

_POSITION = """
SELECT copies.copy_no, copies.cursor, copies.copy_no = feeds.building_no, feeds.copy_no, copies.is_reread,
  feeds.diverged FROM feeds
JOIN copies ON copies.copy_no = coalesce(feeds.building_no, feeds.copy_no) WHERE feeds.feed_no = ?
"""
_IS_FOLLOWED = "SELECT 1 FROM feeds WHERE feed_no = ?"
_NEW_COPY = "INSERT INTO copies (feed_no) VALUES (?)"
_BUILD = "UPDATE feeds SET building_no = ? WHERE feed_no = ?"
# Has no effect if another process advanced the cursor, completed the copy or removed it meanwhile.
_ADVANCE = """
UPDATE copies SET cursor = :next WHERE copy_no = :copy_no AND cursor IS :cursor
  AND EXISTS (SELECT 1 FROM feeds
    WHERE feed_no = :feed_no AND CASE WHEN :is_building THEN building_no ELSE feeds.copy_no END = :copy_no)
"""
_ADD_TO_COUNT = "UPDATE copies SET records = records + ? WHERE copy_no = ?"
_SET_DIGEST_KEY = "UPDATE feeds SET digest_key = ? WHERE feed_no = ?"
_SYNCED = "UPDATE feeds SET synced_s = ? WHERE feed_no = ?"

# Deletes the version that a change replaces, by its whole primary key.
_DELETE_REPLACED = """
DELETE FROM records WHERE (copy_no, seq, address, group_no) = (
  SELECT copy_no, seq, address, group_no FROM states WHERE copy_no = ? AND address = ? AND group_no = ? AND seq < ?)
"""
_UPSERT_STATE = """
INSERT INTO states (copy_no, address, group_no, seq, is_barred) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (copy_no, address, group_no) DO UPDATE SET seq = excluded.seq, is_barred = excluded.is_barred
WHERE excluded.seq > states.seq
"""
# Skips a change that is applied a second time and is no longer the newest of its record.
_INSERT_RECORD = """
INSERT OR IGNORE INTO records
  (copy_no, seq, address, group_no, id, is_barred, reason, source, occurred_at, recorded_at)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
WHERE EXISTS (SELECT 1 FROM states WHERE copy_no = ? AND address = ? AND group_no = ? AND seq = ?)
"""

# In the order of the primary key, so that every row is appended; of several versions, the last one stays.
_FILL_STATES = """
INSERT OR REPLACE INTO states (copy_no, address, group_no, seq, is_barred)
SELECT copy_no, address, group_no, seq, is_barred FROM records WHERE copy_no = ? ORDER BY address, group_no, seq
"""
_COUNT_STATES = "SELECT count(*) FROM states WHERE copy_no = ?"
_COUNT_RECORDS = "SELECT count(*) FROM records WHERE copy_no = ?"
_DELETE_OLD_VERSIONS = """
DELETE FROM records WHERE copy_no = ? AND EXISTS (SELECT 1 FROM states
  WHERE states.copy_no = records.copy_no AND states.address = records.address AND states.group_no = records.group_no
    AND states.seq > records.seq)
"""
_SWAP = "UPDATE feeds SET copy_no = :copy_no, building_no = NULL WHERE feed_no = :feed_no"

# Opt-outs of the old copy that are not opt-outs in the new one. _DELETE_SUPERSEDED then removes those with later acts.
_INSERT_LOST = """
INSERT OR REPLACE INTO missing (feed_no, address, group_no, seq, id, reason, source, occurred_at, recorded_at)
SELECT :feed_no, old.address, old.group_no, old.seq, old.id, old.reason, old.source, old.occurred_at, old.recorded_at
FROM records AS old WHERE old.copy_no = :old_no AND old.is_barred AND NOT EXISTS (SELECT 1 FROM states
  WHERE states.copy_no = :copy_no AND states.address = old.address AND states.group_no = old.group_no
    AND states.is_barred)
"""
# From the changes :first to :last to missing opt-outs, by their primary key. CROSS JOIN fixes this order for SQLite.
_DELETE_SUPERSEDED = """
DELETE FROM missing WHERE feed_no = :feed_no AND (address, group_no) IN (
  SELECT lost.address, lost.group_no FROM records AS new
  CROSS JOIN missing AS lost ON lost.feed_no = :feed_no AND lost.address = new.address AND lost.group_no = new.group_no
  WHERE new.copy_no = :copy_no AND new.seq BETWEEN :first AND :last
    AND (new.is_barred OR new.occurred_at > lost.occurred_at))
"""
_BAR_MISSING = """
UPDATE states SET is_barred = 1 WHERE copy_no = :copy_no AND (address, group_no) IN (
  SELECT lost.address, lost.group_no FROM records AS new
  CROSS JOIN missing AS lost ON lost.feed_no = :feed_no AND lost.address = new.address AND lost.group_no = new.group_no
  WHERE new.copy_no = :copy_no AND new.seq BETWEEN :first AND :last)
"""
_BAR_ALL_MISSING = """
INSERT INTO states (copy_no, address, group_no, seq, is_barred)
SELECT :copy_no, address, group_no, 0, 1 FROM missing WHERE feed_no = :feed_no
ON CONFLICT (copy_no, address, group_no) DO UPDATE SET is_barred = 1
"""
# The copy contains everything that the service decided before the last page was requested.
_RESTORE_SETTLED_STATES = """
UPDATE states SET is_barred = coalesce((SELECT is_barred FROM records
  WHERE records.copy_no = states.copy_no AND records.seq = states.seq AND records.address = states.address
    AND records.group_no = states.group_no), 0)
WHERE copy_no = :copy_no AND (address, group_no) IN (
  SELECT address, group_no FROM missing WHERE feed_no = :feed_no AND settled_s <= :synced_s)
"""
_DELETE_SETTLED = "DELETE FROM missing WHERE feed_no = :feed_no AND settled_s <= :synced_s"
# A restore may lose again what was submitted and settled before.
_UNSETTLE = "UPDATE missing SET settled_s = NULL WHERE feed_no = :feed_no"
_HAS_MISSING = "SELECT EXISTS (SELECT 1 FROM missing WHERE feed_no = ?)"


class FeedGone(Exception):
    """The feed is no longer followed."""


class Groups:
    """A cache of the group numbers in this file. Discard it if a transaction is rolled back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str | None, int] = {None: 0}

    def numbers(self, changes: Iterable[Change], org_slug: str) -> dict[str | None, int]:
        """Return the number of every group in the changes. New groups are inserted."""
        for group_id in {change.group_id for change in changes} - self._numbers.keys():
            self._connection.execute(
                "INSERT OR IGNORE INTO groups (group_id, org_slug) VALUES (?, ?)", (group_id, org_slug)
            )
            rows = self._connection.execute("SELECT group_no FROM groups WHERE group_id = ?", (group_id,))
            (self._numbers[group_id],) = rows.fetchone()
        return self._numbers


def position_of(connection: sqlite3.Connection, feed: Feed) -> Position:
    """Return where to continue reading, and create the first copy if there is none. Raises FeedGone."""
    if connection.execute(_IS_FOLLOWED, (feed.feed_no,)).fetchone() is None:
        raise FeedGone
    row = connection.execute(_POSITION, (feed.feed_no,)).fetchone()
    if row is None:
        _begin_copy(connection, feed.feed_no)
        row = connection.execute(_POSITION, (feed.feed_no,)).fetchone()
    copy_no, cursor, is_building, answering_no, is_reread, diverged = row
    return Position(
        feed_no=feed.feed_no,
        org_slug=feed.org_slug,
        channel=feed.channel,
        copy_no=copy_no,
        cursor=cursor,
        is_building=bool(is_building),
        old_no=answering_no if is_building else None,
        is_reread=bool(is_building and is_reread),
        bars_meanwhile=bool(is_building and diverged == Divergence.REREADING),
        is_diverged=diverged != Divergence.AGREES,
    )


def restart(connection: sqlite3.Connection, feed: Feed, refused: Position) -> None:
    """Start a new copy, since the cursor of `refused` was refused. No effect if another process was faster."""
    if position_of(connection, feed) == refused:
        _begin_copy(connection, feed.feed_no)


def apply(
    connection: sqlite3.Connection,
    groups: Groups,
    position: Position,
    changes: Sequence[Change],
    *,
    next_cursor: str,
    synced_s: float | None,
    digest_key: str | None = None,
) -> bool:
    """Apply changes and advance the cursor. Returns False, without any effect, if another process was faster.

    `synced_s` is given with the last page: the copy is used for answers from now on, and was as new as the service at
    that time.
    """
    parameters = msgspec.structs.asdict(position) | {"next": next_cursor}
    if connection.execute(_ADVANCE, parameters).rowcount == 0:
        return False
    if digest_key is not None:
        connection.execute(_SET_DIGEST_KEY, (digest_key, position.feed_no))
    rows = _rows(position.copy_no, changes, groups.numbers(changes, position.org_slug))
    if position.is_building:
        _append(connection, position.copy_no, rows)
        if position.bars_meanwhile:
            connection.executemany(_UPSERT_STATE, [(*_key(row), row[1], row[5]) for row in rows])
    elif rows:
        _apply_changes(connection, position, rows)
    if synced_s is not None:
        if position.is_building:
            _complete(connection, position)
        connection.execute(_SYNCED, (synced_s, position.feed_no))
        _delete_settled(connection, position, synced_s)
    return True


def _begin_copy(connection: sqlite3.Connection, feed_no: int) -> None:
    copy_no = connection.execute(_NEW_COPY, (feed_no,)).lastrowid
    connection.execute(_BUILD, (copy_no, feed_no))


def _rows(copy_no: int, changes: Sequence[Change], numbers: dict[str | None, int]) -> list[Row]:
    return [
        (
            copy_no,
            change.seq,
            erased.stored_address(change.address, change.address_digest) or "",
            numbers[change.group_id],
            change.id,
            change.status == "unsubscribed",
            change.reason,
            change.source,
            change.occurred_at,
            change.recorded_at,
        )
        for change in changes
    ]


def _append(connection: sqlite3.Connection, copy_no: int, rows: list[Row]) -> None:
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        slice_rows = rows[start : start + _ROWS_PER_STATEMENT]
        connection.execute(
            _APPEND + ", ".join([_ROW] * len(slice_rows)), [value for row in slice_rows for value in row]
        )
    connection.execute(_ADD_TO_COUNT, (len(rows), copy_no))


def _apply_changes(connection: sqlite3.Connection, position: Position, rows: list[Row]) -> None:
    replaced = erased.find_replaced(connection, position.copy_no, [(row[2], row[4]) for row in rows])
    keys = list({(row[2], row[3]) for row in rows} | {(address, group_no) for address, group_no, _, _ in replaced})
    figures = kept_figures(connection, position.copy_no)
    before = figures_of_keys(connection, position.copy_no, keys) if figures is not None else None
    removed = connection.executemany(_DELETE_REPLACED, [(*_key(row), row[1]) for row in rows]).rowcount
    removed += erased.delete_replaced(connection, position.copy_no, replaced)
    connection.executemany(_UPSERT_STATE, [(*_key(row), row[1], row[5]) for row in rows])
    added = connection.executemany(_INSERT_RECORD, [(*row, *_key(row), row[1]) for row in rows]).rowcount
    if figures is not None and before is not None:
        after = figures_of_keys(connection, position.copy_no, keys)
        keep_figures(connection, position.copy_no, figures.after(before, after))
    else:
        connection.execute(_ADD_TO_COUNT, (added - removed, position.copy_no))
    if _has_missing(connection, position):
        parameters = {
            "feed_no": position.feed_no,
            "copy_no": position.copy_no,
            "first": rows[0][1],
            "last": rows[-1][1],
        }
        connection.execute(_DELETE_SUPERSEDED, parameters)
        erased.forget_missing(connection, position.feed_no, position.copy_no, None)
        connection.execute(_BAR_MISSING, parameters)


def _delete_settled(connection: sqlite3.Connection, position: Position, synced_s: float) -> None:
    if _has_missing(connection, position):
        parameters = {"feed_no": position.feed_no, "copy_no": position.copy_no, "synced_s": synced_s}
        connection.execute(_RESTORE_SETTLED_STATES, parameters)
        connection.execute(_DELETE_SETTLED, parameters)


def _has_missing(connection: sqlite3.Connection, position: Position) -> bool:
    return bool(connection.execute(_HAS_MISSING, (position.feed_no,)).fetchone()[0])


def _key(row: Row) -> tuple[int, str, int]:
    return row[0], row[2], row[3]


def _complete(connection: sqlite3.Connection, position: Position) -> None:
    """Use this copy for answers, and store the opt-outs that only the previous copy has as missing."""
    copy_no = position.copy_no
    erased.delete_old_versions(connection, copy_no)
    connection.execute(_FILL_STATES, (copy_no,))
    (records,) = connection.execute(_COUNT_STATES, (copy_no,)).fetchone()
    (appended,) = connection.execute(_COUNT_RECORDS, (copy_no,)).fetchone()
    if appended != records:
        connection.execute(_DELETE_OLD_VERSIONS, (copy_no,))
    keep_figures(connection, copy_no, figures_of_copy(connection, copy_no))
    if position.old_no is not None:
        parameters = {"feed_no": position.feed_no, "copy_no": copy_no, "old_no": position.old_no}
        if not position.is_reread:  # nobody knows how the copy that differs got what it alone has
            connection.execute(_UNSETTLE, parameters)
            connection.execute(_INSERT_LOST, parameters)
        erased.forget_missing(connection, position.feed_no, copy_no, position.old_no)
        connection.execute(_DELETE_SUPERSEDED, parameters | {"first": 0, "last": 2**63 - 1})
        connection.execute(_BAR_ALL_MISSING, parameters)
    connection.execute(_SWAP, {"copy_no": copy_no, "feed_no": position.feed_no})
