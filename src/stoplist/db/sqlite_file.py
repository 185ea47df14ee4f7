"""Read-only access to a SQLite file, also while a server uses it or without permission to write."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from stoplist.db.query import Query, load_queries
from stoplist.db.remedies import sqlite_remedy
from stoplist.errors import StoreUnavailable

_QUERIES = load_queries(__package__)
_HAS_DEPLOYMENT = _QUERIES["has_deployment"]
_DEPLOYMENT = _QUERIES["deployment"]

_WAIT_S = 5.0
_READ_BYTES = 1 << 20
# SQLite can neither open nor create the shared-memory file through which processes share a database.
_NO_SHARING = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


@contextmanager
def read_only(path: Path, *, allow_unshared: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a connection that cannot write, takes no lock that a writer waits for, and makes no checkpoint on closing.

    If the folder is not writable and no server runs, SQLite cannot share the file with a server that may start.
    `allow_unshared` reads it anyway: for a few rows, not for a copy. Raise sqlite3.Error if the file cannot be read.
    """
    with closing(_connect(path, allow_unshared=allow_unshared)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def schema_version_of(connection: sqlite3.Connection) -> int | None:
    """Return the schema version; None if this is not a Stoplist database."""
    if not connection.execute(_HAS_DEPLOYMENT.sqlite).fetchall():
        return None
    row = connection.execute(_DEPLOYMENT.sqlite).fetchone()
    return None if row is None else int(row["schema_version"])


def open_immutable(path: Path) -> sqlite3.Connection:
    """Open a file that nothing writes to. SQLite neither creates nor reads files beside it."""
    return _open(path, "immutable=1")


def _connect(path: Path, *, allow_unshared: bool) -> sqlite3.Connection:
    connection = _open(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.Error as error:
        connection.close()
        is_unshared = error.sqlite_errorcode & 0xFF in _NO_SHARING and not _wal_path(path).exists()
        if not allow_unshared or not is_unshared:
            raise
        return open_immutable(path)
    return connection


def _open(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=_WAIT_S, isolation_level=None)


def _wal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


class ReadOnlyFile:
    """Runs read statements on a file, with errors as StoreUnavailable."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def one(self, query: Query, **values: Any) -> sqlite3.Row | None:
        """Return the first row of a read, or None."""
        rows = await self.all(query, **values)
        return rows[0] if rows else None

    async def all(self, query: Query, **values: Any) -> list[sqlite3.Row]:
        """Return every row of a read."""
        with _translated_errors():
            return self._connection.execute(query.sqlite, values).fetchall()


@contextmanager
def open_for_inspection(path: Path) -> Iterator[ReadOnlyFile]:
    """Open a file for a few reads, whether a server runs or not."""
    with ExitStack() as stack:
        with _translated_errors():
            connection = stack.enter_context(read_only(path, allow_unshared=True))
        yield ReadOnlyFile(connection)


def is_in_wal_mode(path: Path) -> bool:
    """Return whether the file uses a write-ahead log (source: bytes 18 and 19 of the file format's header)."""
    with path.open("rb") as file:
        return file.read(20)[18:20] == b"\2\2"


def unreadable_reason(path: Path) -> str | None:
    """Return why the system cannot read the whole file, such as a failing disk; None if it can.

    Unlike SQLite, which calls both corrupt, it tells a disk that fails from a file with wrong content.
    """
    try:
        with path.open("rb", buffering=0) as file:
            while file.read(_READ_BYTES):
                pass
    except OSError as error:
        return error.strerror
    return None


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        remedy = sqlite_remedy(error.sqlite_errorcode & 0xFF)
        raise StoreUnavailable(f"the file cannot be read ({error.sqlite_errorname}): {remedy}") from None
