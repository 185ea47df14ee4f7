"""What SQLite says, as a MirrorError that tells its reader what to do."""

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
    "The mirror {path} is damaged. Delete it, and the files of the same name that end in -wal and -shm; follow again "
    "what it followed, and synchronise: it is read anew. Send nothing until that is done."
)
_TEXTS = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: "No room is left for the mirror {path}. Nothing of it is lost: make room, and go on.",
    sqlite3.SQLITE_BUSY: "Another process keeps the mirror {path} busy: try again in a moment.",
    sqlite3.SQLITE_LOCKED: "Another process keeps the mirror {path} busy: try again in a moment.",
    sqlite3.SQLITE_READONLY: "The mirror {path} cannot be written: this user must be allowed to, and its folder too.",
    sqlite3.SQLITE_CANTOPEN: "The mirror {path} cannot be opened: this user must be allowed to, and its folder too.",
}
_OTHER = "The mirror {path} cannot be read or written: {error}. Look after the disk; what was stored is kept."


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Whatever SQLite raises within comes out as MirrorError."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_mirror_error(error, path) from None


def as_mirror_error(error: sqlite3.Error, path: Path) -> MirrorError:
    """The same, for people. SQLite's own texts name tables, never what is in them."""
    # The low byte is the kind; the rest says where it was met.
    kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return MirrorError(_TEXTS.get(kind, _OTHER).format(path=path, error=error))


def without_traceback(error: Refusal) -> Refusal:
    """The same error, without the way that it came: the frames there hold addresses, and some programs log them."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def shows_nothing(function: Callable[P, T]) -> Callable[P, T]:
    """Errors of ours come out of the function with none of the frames that hold what it was given."""

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except StoplistClientError as error:
            refusal = without_traceback(error)
        del args, named
        raise refusal

    return call
