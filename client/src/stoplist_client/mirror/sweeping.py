"""Deletes copies that no feed uses any more, in slices, so that other writers never wait long."""

import sqlite3

from stoplist_client.mirror.file import transaction

_UNUSED_COPIES = """
SELECT copy_no FROM copies
WHERE NOT EXISTS (SELECT 1 FROM feeds WHERE feeds.copy_no = copies.copy_no OR building_no = copies.copy_no)
"""
# For each table: the end of a slice by its key, the deletion up to there, and the deletion of the last slice.
_SLICES = (
    (
        "SELECT seq FROM records WHERE copy_no = ? ORDER BY seq LIMIT 1 OFFSET 10000",
        "DELETE FROM records WHERE copy_no = ? AND seq <= ?",
        "DELETE FROM records WHERE copy_no = ?",
    ),
    (
        "SELECT address FROM states WHERE copy_no = ? ORDER BY address LIMIT 1 OFFSET 10000",
        "DELETE FROM states WHERE copy_no = ? AND address <= ?",
        "DELETE FROM states WHERE copy_no = ?",
    ),
)


def sweep(connection: sqlite3.Connection) -> None:
    """Delete all unused copies; their space is reused. May be interrupted and repeated."""
    for (copy_no,) in connection.execute(_UNUSED_COPIES).fetchall():
        for find_end, delete_up_to, delete_rest in _SLICES:
            is_last = False
            while not is_last:
                with transaction(connection):
                    end = connection.execute(find_end, (copy_no,)).fetchone()
                    is_last = end is None
                    if end is None:
                        connection.execute(delete_rest, (copy_no,))
                    else:
                        connection.execute(delete_up_to, (copy_no, *end))
        connection.execute("DELETE FROM copies WHERE copy_no = ?", (copy_no,))
