"""The last version of each record of an export with its history, in bounded memory.

An export with its history has a line for every version of a record. A person who opted out and came back has an
opt-out among them, which must not be imported. Kept by SQLite in a private temporary file, by id, not by a hash: no
two records may look alike. Source: docs/interface.md section D12, Formats.
"""

import sqlite3
from collections.abc import Sequence

from stoplist_addresses.lists.model import ListError

_CACHE_KIB = 32 * 1024
_MAX_DIGITS = 18


class LastVersions:
    """The greatest `seq` of each record."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE last (id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID")
        self._file.execute("BEGIN")

    def add(self, ids: Sequence[str], seqs: Sequence[str]) -> None:
        """Add versions of records. Raise ListError at a `seq` that is no number."""
        self._file.executemany(
            "INSERT INTO last VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET seq = max(seq, excluded.seq)",
            zip(ids, map(_number, seqs), strict=True),
        )

    def are_last(self, ids: Sequence[str], seqs: Sequence[str]) -> list[bool]:
        """Return whether each of these versions is the last of its record. All versions have been added before."""
        find = self._file.execute
        return [
            find("SELECT 1 FROM last WHERE id = ? AND seq = ?", (id_, _number(seq))).fetchone() is not None
            for id_, seq in zip(ids, seqs, strict=True)
        ]


def _number(seq: str) -> int:
    if not (seq.isascii() and seq.isdigit() and len(seq) <= _MAX_DIGITS):
        raise ListError("The export has a `seq` that is no number, so the last version of a record cannot be found.")
    return int(seq)
