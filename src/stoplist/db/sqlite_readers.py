"""Readers of a SQLite file: they have connections of their own, and check that the file is still the same."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoplist.db.sqlite_connection import SMALL_CACHE_KIB, connect, file_identity, translated_errors
from stoplist.errors import StoreUnavailable

FILE_CHECK_S = 0.1
IDLE_READERS = 4


class SqliteReaders:
    """Connections for reads that outlast one slice, so that each has a snapshot of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.idle: list[sqlite3.Connection] = []
        self._is_closed = False

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection within this context, in any thread."""
        try:
            connection = self.idle.pop()
        except IndexError:
            with translated_errors(is_statement=False):
                connection = connect(self._path, cache_kib=SMALL_CACHE_KIB)
        try:
            yield connection
        finally:
            if len(self.idle) < IDLE_READERS and not self._is_closed:
                self.idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close the idle connections; a lent one is closed when it is given back."""
        self._is_closed = True
        for connection in self.idle:
            connection.close()


class FileWatch:
    """Notices that the file was removed or replaced: writes to the old one would be lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = file_identity(path)
        self._next_check_s = 0.0

    def check(self) -> None:
        """Raise StoreUnavailable if the path leads to another file than at the beginning, or to none."""
        if file_identity(self._path) != self._file:
            raise StoreUnavailable(
                "The database file was removed or replaced while the server ran: restart the server."
            )
        self._next_check_s = time.monotonic() + FILE_CHECK_S

    def check_if_due(self) -> None:
        """Check if FILE_CHECK_S has passed. For reads, many of which cost no more than the check itself."""
        if time.monotonic() >= self._next_check_s:
            self.check()
