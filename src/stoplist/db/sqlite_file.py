"""A SQLite file as it is: read beside a server that serves it, and without the right to write anything."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from stoplist.db.query import Query, load_queries
from stoplist.errors import StoreUnavailable

_QUERIES = load_queries(__package__)
_HAS_DEPLOYMENT = _QUERIES["has_deployment"]
_DEPLOYMENT = _QUERIES["deployment"]

_WAIT_S = 5.0
# The file through which processes share a database can neither be opened nor made.
_NO_SHARING = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


@contextmanager
def read_only(path: Path, *, even_unshared: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write: it takes no lock that a writer waits for, and checkpoints nothing when it ends.

    Where the folder may not be written to and no server runs, SQLite cannot share the file with a server that may
    start; `even_unshared` reads it all the same: for a few rows, not for a copy. sqlite3.Error when it cannot be read.
    """
    with closing(_connected(path, even_unshared=even_unshared)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def schema_of(connection: sqlite3.Connection) -> int | None:
    """Which schema the database has; None where it is not one of ours."""
    if not connection.execute(_HAS_DEPLOYMENT.sqlite).fetchall():
        return None
    row = connection.execute(_DEPLOYMENT.sqlite).fetchone()
    return None if row is None else int(row["schema_version"])


def immutable(path: Path) -> sqlite3.Connection:
    """A connection to a file that nobody writes: it makes no file beside it, and heeds none."""
    return _open(path, "immutable=1")


def _connected(path: Path, *, even_unshared: bool) -> sqlite3.Connection:
    connection = _open(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.Error as error:
        connection.close()
        is_unshared = error.sqlite_errorcode & 0xFF in _NO_SHARING and not _log_of(path).exists()
        if not even_unshared or not is_unshared:
            raise
        return immutable(path)
    return connection


def _open(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=_WAIT_S, isolation_level=None)


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


class ReadOnly:
    """Statements on a file that nothing is written to; StoreUnavailable when it cannot be read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def one(self, query: Query, **values: Any) -> sqlite3.Row | None:
        """The first row of a read, or None."""
        with _translated():
            rows = self._connection.execute(query.sqlite, values).fetchall()
        return rows[0] if rows else None


@contextmanager
def examined(path: Path) -> Iterator[ReadOnly]:
    """The file, to be looked at wherever it lies and whether a server runs or not."""
    with ExitStack() as stack:
        with _translated():
            connection = stack.enter_context(read_only(path, even_unshared=True))
        yield ReadOnly(connection)


def is_in_wal_mode(path: Path) -> bool:
    """Whether changes go to a log beside the file (source: the file format's header, bytes 18 and 19)."""
    with path.open("rb") as file:
        return file.read(20)[18:20] == b"\2\2"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailable(f"it cannot be read ({error.sqlite_errorname})") from None
