"""Which driver a database address means."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from stoplist.db import Database
from stoplist.errors import SettingsError

_SQLITE = "sqlite:///"


def sqlite_path(database_url: str) -> Path | None:
    """The file that an address names; None for PostgreSQL."""
    return Path(database_url.removeprefix(_SQLITE)) if database_url.startswith(_SQLITE) else None


def make_folder(database_url: str) -> None:
    """The folder of a SQLite file exists, for its owner alone if it had to be made."""
    path = sqlite_path(database_url)
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"The folder {path.parent} cannot be made: {error.strerror}.") from None


@contextmanager
def served_alone(database_url: str, *, refusal: str | None = None) -> Iterator[None]:
    """While this lasts no other server can serve the same SQLite file; PostgreSQL takes any number.

    The lock is the operating system's: it ends with the process, however that ends. `refusal` is the text where
    another process has it.
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
                or f"Another server runs on {path} (or `stoplist copy` reads it), and one SQLite database is served by "
                "one process. Stop that one, choose another --data-dir, or move to PostgreSQL."
            ) from None
        yield


def _lock_file(path: Path) -> TextIO:
    try:
        # For its owner alone: another user who may open it could hold it.
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(lock, "w")
    except OSError as error:
        raise SettingsError(f"The data folder {path.parent} cannot be written to: {error.strerror}.") from None


async def open_database(database_url: str, *, create: bool, pool_size: int = 20, prepared: bool = True) -> Database:
    """Open a database; SettingsError when it cannot be. `create` makes an absent SQLite file."""
    path = sqlite_path(database_url)
    if path is not None:
        from stoplist.db.sqlite import Sqlite  # noqa: PLC0415 - a start on PostgreSQL needs no sqlite3

        return await Sqlite.open(path, create=create)
    from stoplist.db.postgresql import Postgresql  # noqa: PLC0415 - a start on SQLite needs no asyncpg

    return await Postgresql.open(database_url, pool_size=pool_size, prepared=prepared)
