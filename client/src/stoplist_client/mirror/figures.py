"""The number of records of a copy, and their digest: what the service gives out as the `state` of a feed.

Both are read from the tables, never from a page, so that what was not stored as it was sent is found.
Source: docs/interface.md section D14, State of a feed. Reasons: docs/decisions/0027-mirrors-that-differ.md.
"""

import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

_MODULUS = 1 << 256
_ROWS_AT_ONCE = 1_000

# The text that is hashed, in the form of RFC 8785: of ids, statuses and canonical addresses, SQLite's is the same.
# Of an erased person the digest is hashed, without the prefix, which no address contains.
_HASHED = """
CAST(json_array(records.id, (SELECT group_id FROM groups WHERE groups.group_no = records.group_no),
  replace(records.address, 'erased:', ''),
  CASE records.is_barred WHEN 1 THEN 'unsubscribed' WHEN 0 THEN 'resubscribed' END, records.seq) AS BLOB)
"""
_OF_COPY = f"SELECT {_HASHED} FROM records WHERE copy_no = ?"  # noqa: S608 - constants
# By the primary keys of `states` and `records`, once for each key.
_OF_KEYS = f"""
SELECT {_HASHED} FROM json_each(?) AS given
CROSS JOIN states ON states.copy_no = ? AND states.address = json_extract(given.value, '$[0]')
  AND states.group_no = json_extract(given.value, '$[1]')
CROSS JOIN records ON records.copy_no = states.copy_no AND records.seq = states.seq
  AND records.address = states.address AND records.group_no = states.group_no
"""  # noqa: S608 - constants
# Queries are answered from `states` alone. An opt-out that the service lost bars, whatever the record says.
_DISAGREEING = """
SELECT EXISTS (SELECT 1 FROM records WHERE copy_no = :copy_no AND NOT EXISTS (SELECT 1 FROM states
  WHERE states.copy_no = records.copy_no AND states.address = records.address AND states.group_no = records.group_no
    AND states.seq = records.seq AND (states.is_barred = records.is_barred OR (states.is_barred = 1
      AND EXISTS (SELECT 1 FROM missing WHERE missing.feed_no = :feed_no AND missing.address = records.address
        AND missing.group_no = records.group_no)))))
  OR (SELECT count(*) FROM states WHERE copy_no = :copy_no AND seq > 0)
    != (SELECT count(*) FROM records WHERE copy_no = :copy_no)
"""
_KEPT = "SELECT records, digest FROM copies WHERE copy_no = ?"
_KEEP = "UPDATE copies SET records = ?, digest = ? WHERE copy_no = ?"


class Figures(NamedTuple):
    """A number of records, and the sum of their hashes."""

    records: int
    digest: int

    @property
    def text(self) -> str:
        """Return the digest as 64 lower-case hexadecimal digits."""
        return f"{self.digest:064x}"

    def after(self, removed: "Figures", added: "Figures") -> "Figures":
        """Return the figures after a change."""
        return Figures(
            self.records - removed.records + added.records, (self.digest - removed.digest + added.digest) % _MODULUS
        )


def figures_of_copy(connection: sqlite3.Connection, copy_no: int) -> Figures:
    """Return the figures of all records of a copy; takes about a microsecond a record."""
    return _figures(connection.execute(_OF_COPY, (copy_no,)))


def figures_of_keys(connection: sqlite3.Connection, copy_no: int, keys: Sequence[tuple[str, int]]) -> Figures:
    """Return the figures of the records of these addresses and group numbers, each given once."""
    return _figures(connection.execute(_OF_KEYS, (msgspec.json.encode(keys).decode(), copy_no)))


def tables_agree(connection: sqlite3.Connection, feed_no: int, copy_no: int) -> bool:
    """Return whether the table that answers queries says what the records say."""
    (disagree,) = connection.execute(_DISAGREEING, {"feed_no": feed_no, "copy_no": copy_no}).fetchone()
    return not disagree


def kept_figures(connection: sqlite3.Connection, copy_no: int) -> Figures | None:
    """Return the figures that the changes of the copy carried on; None if they were never computed."""
    records, digest = connection.execute(_KEPT, (copy_no,)).fetchone()
    return None if digest is None else Figures(records, int(digest, 16))


def keep_figures(connection: sqlite3.Connection, copy_no: int, figures: Figures) -> None:
    """Set the figures of a copy."""
    connection.execute(_KEEP, (figures.records, figures.text, copy_no))


def _figures(rows: sqlite3.Cursor) -> Figures:
    records = digest = 0
    while part := rows.fetchmany(_ROWS_AT_ONCE):
        records += len(part)
        digest += sum([int.from_bytes(sha256(text).digest(), "big") for (text,) in part])
    return Figures(records, digest % _MODULUS)
