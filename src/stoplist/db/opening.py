"""Opening a database: the driver and the file that a database URL stands for."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from stoplist.db import Database
from stoplist.errors import SettingsError
from stoplist.folders import folder_error

_SQLITE = "sqlite:///"


def sqlite_path(database_url: str) -> Path | None:
    """Return the path of the SQLite file; None for PostgreSQL."""
    return Path(database_url.removeprefix(_SQLITE)) if database_url.startswith(_SQLITE) else None


def create_folder(database_url: str) -> None:
    """Create the folder of a SQLite file, with mode 0700, unless it exists."""
    path = sqlite_path(database_url)
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = folder_error(path.parent, error)
        raise SettingsError(f"The folder {path.parent} cannot be created: {reason}.") from None


@contextmanager
def single_server_lock(database_url: str, *, refusal: str | None = None) -> Iterator[None]:
    """Keep other servers from serving the same SQLite file within this context. Do nothing for PostgreSQL.

    The lock is the operating system's and ends with the process, even after a crash. Raise SettingsError, with
    `refusal` as its text, if another process holds the lock.
    """
    path = sqlite_path(database_url)
    if path is None:
        yield
        return
    with _lock_file(path.resolve()) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                refusal
                or f"Another server uses {path}, or `stoplist copy` reads it. Only one process can serve a SQLite "
                "database: stop the other one, choose another --data-dir, or move to PostgreSQL."
            ) from None
        yield


def is_served(database_url: str) -> bool:
    """Return whether a server uses the SQLite file now; False for PostgreSQL."""
    path = sqlite_path(database_url)
    if path is None:
        return False
    with _lock_file(path.resolve()) as lock:
        try:
            # Held for microseconds. A shared lock, so that two commands do not take each other for a server.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock_file(path: Path) -> TextIO:
    try:
        # Mode 0600: another user who could open the file could hold the lock.
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(lock, "w")
    except OSError as error:
        raise SettingsError(
            f"The data folder {path.parent} cannot be written to: {folder_error(path.parent, error)}."
        ) from None


async def open_database(
    database_url: str,
    *,
    create: bool,
    pool_size: int = 20,
    prepared: bool = True,
    setting: str = "STOPLIST_DATABASE_URL",
) -> Database:
    """Open a database. Raise SettingsError if this fails. `create` creates a missing SQLite file.

    `setting` is the one that an error names.
    """
    path = sqlite_path(database_url)
    if path is not None:
        from stoplist.db.sqlite import Sqlite  # noqa: PLC0415 - a start on PostgreSQL needs no sqlite3

        return await Sqlite.open(path, create=create)
    from stoplist.db.postgresql import Postgresql  # noqa: PLC0415 - a start on SQLite needs no asyncpg

    return await Postgresql.open(database_url, pool_size=pool_size, prepared=prepared, setting=setting)
