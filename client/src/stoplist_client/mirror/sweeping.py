"""Throws copies away that no feed names any more, in slices, so that nobody waits long for the file."""

import sqlite3

from stoplist_client.mirror.file import transaction

_RUBBISH = """
SELECT copy_no FROM copies
WHERE NOT EXISTS (SELECT 1 FROM feeds WHERE feeds.copy_no = copies.copy_no OR building_no = copies.copy_no)
"""
# For each table the end of a slice, by its key; how to delete up to there; and how to delete what is less than one.
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
    """Nothing is left of copies that were replaced; their room is used again. May be interrupted and repeated."""
    for (copy_no,) in connection.execute(_RUBBISH).fetchall():
        for find_end, delete_up_to, delete_rest in _SLICES:
            is_over = False
            while not is_over:
                with transaction(connection):
                    end = connection.execute(find_end, (copy_no,)).fetchone()
                    is_over = end is None
                    if end is None:
                        connection.execute(delete_rest, (copy_no,))
                    else:
                        connection.execute(delete_up_to, (copy_no, *end))
        connection.execute("DELETE FROM copies WHERE copy_no = ?", (copy_no,))
