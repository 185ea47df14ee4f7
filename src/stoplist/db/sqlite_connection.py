"""Opens connections to a SQLite file, and classifies their errors."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from stoplist.db.query import load_queries
from stoplist.db.remedies import sqlite_remedy
from stoplist.errors import StoreUnavailable

_QUERIES = load_queries(__package__)
_ANY_TABLE = _QUERIES["any_table"]
_HAS_DEPLOYMENT = _QUERIES["has_deployment"]
LOCK_WAIT_S = 5.0
MINIMUM_VERSION = (3, 38, 0)  # RETURNING (3.35), JSON functions built in (3.38)


# A batch into a big feed touches thousands of index pages: 16 MiB takes a third longer, 64 MiB is hardly faster. With
# 32 MiB the memory of an import grows by more than a fifth with its rows (docs/decisions/0023-imports.md).
WRITER_CACHE_KIB = 24_576
READER_CACHE_KIB = 16_384
SMALL_CACHE_KIB = 2_048


# Primary result codes that mean the store is unavailable, not a defect in our code: busy, locked, out of memory,
# read-only, I/O error, corrupt, full, cannot open, locking protocol, no database.
STORE_CODES = frozenset((5, 6, 7, 8, 10, 11, 13, 14, 15, 26))
BUSY = 5
CONSTRAINT = 19


def connect(path: Path, *, cache_kib: int) -> sqlite3.Connection:
    """Open a connection with the settings that all connections share. The file must exist."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=LOCK_WAIT_S,  # while opening; afterwards `_begin` waits on the event loop
        isolation_level=None,
        check_same_thread=False,  # used on the loop and in threads, but never in two at once
        cached_statements=256,
    )
    connection.row_factory = sqlite3.Row
    try:
        if not _is_foreign(connection):
            _switch_to_wal(connection)
        for pragma in (
            "synchronous=FULL",
            "foreign_keys=ON",
            "wal_autocheckpoint=0",
            f"cache_size=-{cache_kib}",
            "temp_store=MEMORY",
            "busy_timeout=0",
            # Replaced and deleted texts are overwritten within their page. Otherwise a copy of the file may show a TOTP
            # secret that an older program stored in clear. Writes no further page.
            "secure_delete=FAST",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode permanently. Raise SQLITE_BUSY if others hold it longer than `LOCK_WAIT_S`.

    Two processes that switch a new file at once would deadlock, so SQLite refuses one of them despite its timeout.
    """
    give_up_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) != BUSY or time.monotonic() >= give_up_s:
                raise
            time.sleep(0.01)  # blocks the loop, but the file is new and nothing is served yet


def _is_foreign(connection: sqlite3.Connection) -> bool:
    """Return whether the file has tables but none of ours: it is refused later and must not be changed."""
    if connection.execute(_HAS_DEPLOYMENT.sqlite).fetchall():
        return False
    return bool(connection.execute(_ANY_TABLE.sqlite).fetchall())


def make_private_file(path: Path) -> None:
    """Create a missing file with mode 0600. May raise OSError."""
    # To close an existing one would give up the locks of this process's other connections to it, and another process
    # would take itself for the last that uses the file, and delete the log.
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of that name: its device and inode. None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 1 (SQLITE_ERROR) if the error has none."""
    return getattr(error, "sqlite_errorcode", 1) & 0xFF


@contextlib.contextmanager
def translated_errors(*, is_statement: bool = True) -> Iterator[None]:
    """Raise errors of SQLite within this context as `translate_error` returns them."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, is_statement=is_statement) from None


def translate_error(error: sqlite3.Error, *, is_statement: bool = True) -> Exception:
    """Return StoreUnavailable, without SQLite's text, for a store failure, and any other error unchanged.

    Outside a statement of ours (while opening the file, at BEGIN and COMMIT) every failure but a constraint's is the
    store's.
    """
    is_defect = primary_code(error) not in STORE_CODES if is_statement else primary_code(error) == CONSTRAINT
    if is_defect:
        return error
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return StoreUnavailable(f"The database cannot serve this now ({name}): {sqlite_remedy(primary_code(error))}.")
