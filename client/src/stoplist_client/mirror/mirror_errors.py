"""Converts errors of SQLite to MirrorError with messages that say what to do."""

import functools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from stoplist_client.errors import MirrorError, StoplistClientError

P = ParamSpec("P")
T = TypeVar("T")
Refusal = TypeVar("Refusal", bound=Exception)

_DAMAGED = (
    "The mirror {path} is damaged. Delete it and the files of the same name that end in -wal and -shm, follow the same "
    "feeds again, and synchronise. Send nothing until that is done."
)
_TEXTS = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: "The disk of the mirror {path} is full. Nothing is lost: free some space, and try again.",
    sqlite3.SQLITE_BUSY: "The mirror {path} is locked by another process: try again in a moment.",
    sqlite3.SQLITE_LOCKED: "The mirror {path} is locked by another process: try again in a moment.",
    sqlite3.SQLITE_READONLY: "The mirror {path} cannot be written: allow this user to write the file and its folder.",
    sqlite3.SQLITE_CANTOPEN: "The mirror {path} cannot be opened: allow this user to write the file and its folder.",
}
_OTHER = "The mirror {path} cannot be read or written: {error}. Check the disk; stored records are kept."


@contextmanager
def raises_mirror_error(path: Path) -> Iterator[None]:
    """Convert errors of SQLite within this block to MirrorError."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_mirror_error(error, path) from None


def as_mirror_error(error: sqlite3.Error, path: Path) -> MirrorError:
    """Return the MirrorError for an error of SQLite, whose own messages name tables but never contents."""
    # The low byte is the primary code, the rest is the extended code.
    kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return MirrorError(_TEXTS.get(kind, _OTHER).format(path=path, error=error))


def without_traceback(error: Refusal) -> Refusal:
    """Return the error without traceback and causes, whose frames hold addresses and may be logged."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def hides_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Raise our errors out of the decorated function without the frames that hold its arguments."""

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except StoplistClientError as error:
            refusal = without_traceback(error)
        del args, named
        raise refusal

    return call
