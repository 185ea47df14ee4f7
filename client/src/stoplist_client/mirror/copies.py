"""How pages become a copy: put at the end while it is read for the first time, then sorted, then changed in place.

Every function here runs inside a transaction of the caller. Why it is done like this: docs/decisions/0015-client.md.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from stoplist_client.mirror.feeds import Feed
from stoplist_client.mirror.reading import Change, Place

Row = tuple[int, int, str, int, str, bool, str, str | None, str, str]

_APPEND = """
INSERT OR REPLACE INTO records
  (copy_no, seq, address, group_no, id, is_barred, reason, source, occurred_at, recorded_at) VALUES
"""
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# So many rows in one statement take a third less time than one by one, and let the other thread work meanwhile.
_TOGETHER = 500

_PLACE = """
SELECT copies.copy_no, copies.cursor, copies.copy_no = feeds.building_no, feeds.copy_no FROM feeds
JOIN copies ON copies.copy_no = coalesce(feeds.building_no, feeds.copy_no) WHERE feeds.feed_no = ?
"""
_IS_FOLLOWED = "SELECT 1 FROM feeds WHERE feed_no = ?"
_NEW_COPY = "INSERT INTO copies (feed_no) VALUES (?)"
_BUILD = "UPDATE feeds SET building_no = ? WHERE feed_no = ?"
# Takes effect if nobody else moved the cursor meanwhile, completed the copy, or threw it away.
_MOVE = """
UPDATE copies SET cursor = :next WHERE copy_no = :copy_no AND cursor IS :cursor
  AND EXISTS (SELECT 1 FROM feeds
    WHERE feed_no = :feed_no AND CASE WHEN :is_building THEN building_no ELSE feeds.copy_no END = :copy_no)
"""
_COUNT = "UPDATE copies SET records = records + ? WHERE copy_no = ?"
_SYNCED = "UPDATE feeds SET synced_s = ? WHERE feed_no = ?"

# The version that a change takes the place of. By the whole key.
_FORGET = """
DELETE FROM records WHERE (copy_no, seq, address, group_no) = (
  SELECT copy_no, seq, address, group_no FROM states WHERE copy_no = ? AND address = ? AND group_no = ? AND seq < ?)
"""
_SET = """
INSERT INTO states (copy_no, address, group_no, seq, is_barred) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (copy_no, address, group_no) DO UPDATE SET seq = excluded.seq, is_barred = excluded.is_barred
WHERE excluded.seq > states.seq
"""
# A change that is not the newest of its record any more, because it is applied once more, is left out.
_KEEP = """
INSERT OR IGNORE INTO records
  (copy_no, seq, address, group_no, id, is_barred, reason, source, occurred_at, recorded_at)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
WHERE EXISTS (SELECT 1 FROM states WHERE copy_no = ? AND address = ? AND group_no = ? AND seq = ?)
"""

# In the order of the key, so that every row goes to the end; of several versions the last one stays.
_SORT = """
INSERT OR REPLACE INTO states (copy_no, address, group_no, seq, is_barred)
SELECT copy_no, address, group_no, seq, is_barred FROM records WHERE copy_no = ? ORDER BY address, group_no, seq
"""
_SORTED = "SELECT count(*) FROM states WHERE copy_no = ?"
_APPENDED = "SELECT count(*) FROM records WHERE copy_no = ?"
_FORGET_EARLIER = """
DELETE FROM records WHERE copy_no = ? AND EXISTS (SELECT 1 FROM states
  WHERE states.copy_no = records.copy_no AND states.address = records.address AND states.group_no = records.group_no
    AND states.seq > records.seq)
"""
_SWAP = "UPDATE feeds SET copy_no = :copy_no, building_no = NULL WHERE feed_no = :feed_no"
_RECOUNT = "UPDATE copies SET records = ? WHERE copy_no = ?"

# Opt-outs of the old copy that are none in the new one. _FOUND takes away those after which the person did something.
_LOST = """
INSERT OR REPLACE INTO missing (feed_no, address, group_no, seq, id, reason, source, occurred_at, recorded_at)
SELECT :feed_no, old.address, old.group_no, old.seq, old.id, old.reason, old.source, old.occurred_at, old.recorded_at
FROM records AS old WHERE old.copy_no = :old_no AND old.is_barred AND NOT EXISTS (SELECT 1 FROM states
  WHERE states.copy_no = :copy_no AND states.address = old.address AND states.group_no = old.group_no
    AND states.is_barred)
"""
# From the changes, :first to :last, to what is missing, by its key; CROSS JOIN keeps SQLite from going the other way.
_FOUND = """
DELETE FROM missing WHERE feed_no = :feed_no AND (address, group_no) IN (
  SELECT lost.address, lost.group_no FROM records AS new
  CROSS JOIN missing AS lost ON lost.feed_no = :feed_no AND lost.address = new.address AND lost.group_no = new.group_no
  WHERE new.copy_no = :copy_no AND new.seq BETWEEN :first AND :last
    AND (new.is_barred OR new.occurred_at > lost.occurred_at))
"""
_STILL_BARRED = """
UPDATE states SET is_barred = 1 WHERE copy_no = :copy_no AND (address, group_no) IN (
  SELECT lost.address, lost.group_no FROM records AS new
  CROSS JOIN missing AS lost ON lost.feed_no = :feed_no AND lost.address = new.address AND lost.group_no = new.group_no
  WHERE new.copy_no = :copy_no AND new.seq BETWEEN :first AND :last)
"""
_ALL_BARRED = """
INSERT INTO states (copy_no, address, group_no, seq, is_barred)
SELECT :copy_no, address, group_no, 0, 1 FROM missing WHERE feed_no = :feed_no
ON CONFLICT (copy_no, address, group_no) DO UPDATE SET is_barred = 1
"""
# What the service had decided before it was asked for the last page is in the copy by now.
_DECIDED = """
UPDATE states SET is_barred = coalesce((SELECT is_barred FROM records
  WHERE records.copy_no = states.copy_no AND records.seq = states.seq AND records.address = states.address
    AND records.group_no = states.group_no), 0)
WHERE copy_no = :copy_no AND (address, group_no) IN (
  SELECT address, group_no FROM missing WHERE feed_no = :feed_no AND settled_s <= :synced_s)
"""
_SETTLED = "DELETE FROM missing WHERE feed_no = :feed_no AND settled_s <= :synced_s"
# What was submitted before a restore may be lost by it once more.
_UNSETTLE = "UPDATE missing SET settled_s = NULL WHERE feed_no = :feed_no"
_MISSES = "SELECT EXISTS (SELECT 1 FROM missing WHERE feed_no = ?)"


class FeedGone(Exception):
    """The feed is followed no more."""


class Groups:
    """The numbers of groups in this file. Forget it together with a transaction that is rolled back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str | None, int] = {None: 0}

    def numbers(self, changes: Iterable[Change], org_slug: str) -> dict[str | None, int]:
        """That of every group that occurs in the changes; new ones get one."""
        for group_id in {change.group_id for change in changes} - self._numbers.keys():
            self._connection.execute(
                "INSERT OR IGNORE INTO groups (group_id, org_slug) VALUES (?, ?)", (group_id, org_slug)
            )
            found = self._connection.execute("SELECT group_no FROM groups WHERE group_id = ?", (group_id,))
            (self._numbers[group_id],) = found.fetchone()
        return self._numbers


def place_of(connection: sqlite3.Connection, feed: Feed) -> Place:
    """Where to read on; the first copy is begun where there is none. FeedGone where it is followed no more."""
    if connection.execute(_IS_FOLLOWED, (feed.feed_no,)).fetchone() is None:
        raise FeedGone
    row = connection.execute(_PLACE, (feed.feed_no,)).fetchone()
    if row is None:
        _begin(connection, feed.feed_no)
        row = connection.execute(_PLACE, (feed.feed_no,)).fetchone()
    copy_no, cursor, is_building, answering_no = row
    return Place(
        feed_no=feed.feed_no,
        org_slug=feed.org_slug,
        channel=feed.channel,
        copy_no=copy_no,
        cursor=cursor,
        is_building=bool(is_building),
        old_no=answering_no if is_building else None,
    )


def begin_anew(connection: sqlite3.Connection, feed: Feed, refused: Place) -> None:
    """A copy is being read from the start, since the cursor of `refused` is good no more.

    Nothing is done where another process was quicker.
    """
    if place_of(connection, feed) == refused:
        _begin(connection, feed.feed_no)


def apply(
    connection: sqlite3.Connection,
    groups: Groups,
    place: Place,
    changes: Sequence[Change],
    *,
    next_cursor: str,
    synced_s: float | None,
) -> bool:
    """The changes are in the copy, the cursor behind them; False, and nothing was done, if somebody else was quicker.

    `synced_s` is given with the last page: the copy answers from here on, and was as new as the service at that time.
    """
    moved = msgspec.structs.asdict(place) | {"next": next_cursor}
    if connection.execute(_MOVE, moved).rowcount == 0:
        return False
    rows = _rows(place.copy_no, changes, groups.numbers(changes, place.org_slug))
    if place.is_building:
        _append(connection, place.copy_no, rows)
    elif rows:
        _change(connection, place, rows)
    if synced_s is not None:
        if place.is_building:
            _complete(connection, place)
        connection.execute(_SYNCED, (synced_s, place.feed_no))
        _settle(connection, place, synced_s)
    return True


def _begin(connection: sqlite3.Connection, feed_no: int) -> None:
    copy_no = connection.execute(_NEW_COPY, (feed_no,)).lastrowid
    connection.execute(_BUILD, (copy_no, feed_no))


def _rows(copy_no: int, changes: Sequence[Change], numbers: dict[str | None, int]) -> list[Row]:
    return [
        (
            copy_no,
            one.seq,
            one.address,
            numbers[one.group_id],
            one.id,
            one.status == "unsubscribed",
            one.reason,
            one.source,
            one.occurred_at,
            one.recorded_at,
        )
        for one in changes
    ]


def _append(connection: sqlite3.Connection, copy_no: int, rows: list[Row]) -> None:
    for start in range(0, len(rows), _TOGETHER):
        some = rows[start : start + _TOGETHER]
        connection.execute(_APPEND + ", ".join([_ROW] * len(some)), [value for row in some for value in row])
    connection.execute(_COUNT, (len(rows), copy_no))


def _change(connection: sqlite3.Connection, place: Place, rows: list[Row]) -> None:
    gone = connection.executemany(_FORGET, [(*_key(row), row[1]) for row in rows]).rowcount
    connection.executemany(_SET, [(*_key(row), row[1], row[5]) for row in rows])
    come = connection.executemany(_KEEP, [(*row, *_key(row), row[1]) for row in rows]).rowcount
    connection.execute(_COUNT, (come - gone, place.copy_no))
    if _misses(connection, place):
        changed = {"feed_no": place.feed_no, "copy_no": place.copy_no, "first": rows[0][1], "last": rows[-1][1]}
        connection.execute(_FOUND, changed)
        connection.execute(_STILL_BARRED, changed)


def _settle(connection: sqlite3.Connection, place: Place, synced_s: float) -> None:
    if _misses(connection, place):
        settled = {"feed_no": place.feed_no, "copy_no": place.copy_no, "synced_s": synced_s}
        connection.execute(_DECIDED, settled)
        connection.execute(_SETTLED, settled)


def _misses(connection: sqlite3.Connection, place: Place) -> bool:
    return bool(connection.execute(_MISSES, (place.feed_no,)).fetchone()[0])


def _key(row: Row) -> tuple[int, str, int]:
    return row[0], row[2], row[3]


def _complete(connection: sqlite3.Connection, place: Place) -> None:
    """The copy that was read answers; what the one before knew, and this one does not, is missing."""
    copy_no = place.copy_no
    connection.execute(_SORT, (copy_no,))
    (records,) = connection.execute(_SORTED, (copy_no,)).fetchone()
    (appended,) = connection.execute(_APPENDED, (copy_no,)).fetchone()
    if appended != records:
        connection.execute(_FORGET_EARLIER, (copy_no,))
    connection.execute(_RECOUNT, (records, copy_no))
    if place.old_no is not None:
        both = {"feed_no": place.feed_no, "copy_no": copy_no, "old_no": place.old_no}
        connection.execute(_UNSETTLE, both)
        connection.execute(_LOST, both)
        connection.execute(_FOUND, both | {"first": 0, "last": 2**63 - 1})
        connection.execute(_ALL_BARRED, both)
    connection.execute(_SWAP, {"copy_no": copy_no, "feed_no": place.feed_no})
