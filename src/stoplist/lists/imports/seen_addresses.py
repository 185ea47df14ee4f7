"""A set of addresses in bounded memory, for counting repetitions in files of many millions of rows.

Up to MAX_ADDRESSES it is kept by SQLite in a private temporary file, as 64-bit hashes: a set of Python holds 300 MB of
five million addresses. Two different addresses of a file of five million look alike with a probability below one in a
million. Beyond that, a table of bits takes its place, which finds every repetition, and takes some new addresses for
repetitions: of ten million about two in a hundred.
"""

import sqlite3
from collections.abc import Iterable, Sequence

MAX_ADDRESSES = 5_000_000
_CACHE_KIB = 32 * 1024
_TABLE_BITS = 1 << 28  # 32 MiB
_FETCHED_AT_ONCE = 10_000


class SeenAddresses:
    """The addresses that were added so far: exact up to `most` of them."""

    def __init__(self, *, most: int = MAX_ADDRESSES, table_bits: int = _TABLE_BITS) -> None:
        self._most, self._count = most, 0
        self._table_bits, self._table = table_bits, bytearray()
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE seen (hash INTEGER PRIMARY KEY)")
        self._file.execute("BEGIN")

    @property
    def is_exact(self) -> bool:
        """Return whether the results of `add` were exact; beyond, they are lower bounds."""
        return not self._table

    def add(self, addresses: Iterable[str]) -> int:
        """Return how many of these different addresses had not been added before; beyond `most`, at least so many."""
        hashes = sorted(map(hash, addresses))
        if self._count >= self._most and self.is_exact:
            self._begin_table()
        if not self.is_exact:
            return self._add_to_table(hashes)
        added = self._file.executemany("INSERT OR IGNORE INTO seen VALUES (?)", ((each,) for each in hashes)).rowcount
        self._count += added
        return added

    def _begin_table(self) -> None:
        self._table = bytearray(self._table_bits // 8)
        found = self._file.execute("SELECT hash FROM seen")
        while hashes := found.fetchmany(_FETCHED_AT_ONCE):
            self._add_to_table([each for (each,) in hashes])
        self._file.close()

    def _add_to_table(self, hashes: Sequence[int]) -> int:
        table, mask, added = self._table, self._table_bits - 1, 0
        for each in hashes:
            at, bit = (each & mask) >> 3, 1 << (each & 7)
            if not table[at] & bit:
                table[at] |= bit
                added += 1
        return added
