"""Compares a copy with the state that the service gave out, and decides what follows from a difference.

All functions run inside a transaction of the caller. Source: docs/interface.md section D14, State of a feed.
"""

import sqlite3
from enum import IntEnum

from stoplist_client.mirror.figures import (
    Figures,
    figures_of_copy,
    keep_figures,
    kept_figures,
    tables_agree,
)
from stoplist_client.mirror.reading import FeedState, Position

_REREAD_EVERY_S = 3_600.0
# Every `sync` recomputes the figures of a copy of this size, which takes less than a second; of larger ones, or where
# `sync` waits for changes, one a day.
_SMALL_RECORDS = 250_000
_DAY_S = 86_400.0

_FEED = "SELECT diverged, building_no, reread_s FROM feeds WHERE feed_no = ?"
_DIVERGED = "UPDATE feeds SET diverged = ? WHERE feed_no = ?"
_REREAD = "UPDATE feeds SET diverged = ?, building_no = ?, reread_s = ? WHERE feed_no = ?"
_NEW_COPY = "INSERT INTO copies (feed_no, is_reread) VALUES (?, 1)"
_VERIFIED_S = "SELECT records, verified_s FROM copies WHERE copy_no = ?"
_VERIFIED = "UPDATE copies SET verified_s = ? WHERE copy_no = ?"
_MARK = "UPDATE feeds SET diverged = :rereading WHERE feed_no = :feed_no AND copy_no = :copy_no AND diverged = :agrees"


class Divergence(IntEnum):
    """Relation of the copy that answers to the service.

    AGREES:    as far as is known, it has what the service has
    REREADING: it differs, and a new copy is read; until that is complete, what either copy bars is barred, and
               nothing else is answered
    KEPT:      it was read anew and differs again; it answers
    """

    AGREES = 0
    REREADING = 1
    KEPT = 2


class Compared(IntEnum):
    """The result of a comparison: the copy agrees; it differs and is read anew from now on; it differs and is kept."""

    AGREES = 0
    READS_ANEW = 1
    DIFFERS = 2


def compare(
    connection: sqlite3.Connection, position: Position, state: FeedState | None, *, now_s: float, is_waited_for: bool
) -> Compared:
    """Compare a copy, after its last page, with the state at whose `seq` it stands; begin a new copy if they differ.

    `state` is None if the service gave none.
    """
    diverged, building_no, reread_s = connection.execute(_FEED, (position.feed_no,)).fetchone()
    if building_no is not None:
        return Compared.AGREES  # another copy is being read, and will be compared
    is_known_to_differ = diverged == Divergence.REREADING and not position.is_building
    if state is None and not is_known_to_differ:
        if diverged == Divergence.REREADING:
            connection.execute(_DIVERGED, (Divergence.AGREES, position.feed_no))
        return Compared.AGREES
    verifies = is_known_to_differ or _is_verification_due(connection, position, now_s, is_waited_for=is_waited_for)
    if state is not None and _agrees(connection, position, state, now_s=now_s, verifies=verifies):
        connection.execute(_DIVERGED, (Divergence.AGREES, position.feed_no))
        return Compared.AGREES
    if position.is_reread:
        connection.execute(_DIVERGED, (Divergence.KEPT, position.feed_no))
        return Compared.DIFFERS
    if diverged == Divergence.KEPT and 0 <= now_s - reread_s < _REREAD_EVERY_S:
        return Compared.DIFFERS
    copy_no = connection.execute(_NEW_COPY, (position.feed_no,)).lastrowid
    # A copy that differs even when it is fresh goes on answering: a wrong state must not stop all messages.
    now = Divergence.KEPT if diverged == Divergence.KEPT else Divergence.REREADING
    connection.execute(_REREAD, (now, copy_no, now_s, position.feed_no))
    return Compared.READS_ANEW


def mark_diverged(connection: sqlite3.Connection, feed_no: int, copy_no: int) -> None:
    """Let the next synchronisation read the feed anew, since the rows of its copy are not what was stored.

    It first asks with the cursor of that copy, so that a restore of the service is noticed and what it lost is offered.
    """
    connection.execute(
        _MARK,
        {
            "rereading": Divergence.REREADING,
            "agrees": Divergence.AGREES,
            "feed_no": feed_no,
            "copy_no": copy_no,
        },
    )


def _agrees(
    connection: sqlite3.Connection, position: Position, state: FeedState, *, now_s: float, verifies: bool
) -> bool:
    there = Figures(state.records, int(state.digest, 16))
    if not verifies and kept_figures(connection, position.copy_no) == there:
        return True
    # An older program may have changed the copy without carrying the figures on: the rows decide.
    here = figures_of_copy(connection, position.copy_no)
    keep_figures(connection, position.copy_no, here)
    connection.execute(_VERIFIED, (now_s, position.copy_no))
    return here == there and tables_agree(connection, position.feed_no, position.copy_no)


def _is_verification_due(
    connection: sqlite3.Connection, position: Position, now_s: float, *, is_waited_for: bool
) -> bool:
    """Return whether to compute the figures from the rows; those of a copy that is complete just now were."""
    records, verified_s = connection.execute(_VERIFIED_S, (position.copy_no,)).fetchone()
    if position.is_building:
        connection.execute(_VERIFIED, (now_s, position.copy_no))
        return False
    if records <= _SMALL_RECORDS and not is_waited_for:
        return True
    return verified_s is None or not 0 <= now_s - verified_s < _DAY_S
