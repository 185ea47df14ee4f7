"""The file of a mirror and its pool of connections, which notice when the file is replaced."""

import contextlib
import os
import sqlite3
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoplist_client.errors import MirrorError, NotMirrored
from stoplist_client.mirror import on_disk
from stoplist_client.mirror.mirror_errors import raises_mirror_error
from stoplist_client.mirror.on_disk import SCHEMA_VERSION

_BUSY_TIMEOUT_S = 60.0
# The maximum per connection, enough for the queried pages of a million records.
_CACHE_KIB = 64 * 1024
_MAX_WAL_BYTES = 64 * 1024 * 1024
# How often a query checks whether the file was replaced. The check takes a microsecond.
_CHECK_INTERVAL_S = 1.0


class MirrorConnection(sqlite3.Connection):
    """A connection with its cached statements, whose feed and group numbers are valid for this file only."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.statements: dict[Any, Any] = {}
        # For queries of one address: creating a cursor each time would take a twelfth of the query.
        self.single_cursor = self.cursor()
        self.identity: tuple[int, int] | None = None
        self.is_outdated = False


class MirrorFile:
    """The file at `path` and the open connections to it. Any number of threads may share this object."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Absolute, since programs change their working directory. A link's target, because SQLite writes beside it.
        self.path = Path(os.path.realpath(path))
        self._idle: list[MirrorConnection] = []
        self._is_closed = False
        self._next_check_s = 0.0
        _files.add(self)

    def create(self) -> None:
        """Create the mirror, readable by this user only, unless it exists."""
        self._check_open()
        if not self.exists():
            on_disk.create(self.path)

    def exists(self) -> bool:
        """Return whether there is a mirror. Raises MirrorError, without any change, if there is another file."""
        return on_disk.identity(self.path) is not None

    def acquire(self) -> MirrorConnection:
        """Return a connection for exclusive use until `release`."""
        if time.monotonic() >= self._next_check_s:
            self._check_replaced()
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def release(self, connection: MirrorConnection) -> None:
        """Return a connection to the pool."""
        if connection.is_outdated:
            connection.close()
            return
        self._idle.append(connection)
        if self._is_closed:
            self.close_idle()

    @contextlib.contextmanager
    def pooled_connection(self) -> Iterator[MirrorConnection]:
        """Yield a connection of the pool, for a few statements."""
        connection = self.acquire()
        try:
            with raises_mirror_error(self.path):
                yield connection
        finally:
            self.release(connection)

    @contextlib.contextmanager
    def own_connection(self) -> Iterator[MirrorConnection]:
        """Yield a new connection, for long operations."""
        connection = self._open()
        try:
            with raises_mirror_error(self.path):
                yield connection
        finally:
            connection.close()

    def was_replaced(self, connection: MirrorConnection) -> bool:
        """Return whether the file was replaced, as by a repair. If so, the next connection opens the new file."""
        if not connection.is_outdated and self._is_replaced(connection):
            connection.is_outdated = True
            self.close_idle()
        return connection.is_outdated

    def close(self) -> None:
        """Close all connections, those in use by other threads when they are released. May be repeated."""
        self._is_closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that are not in use. Later queries open new ones."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _check_replaced(self) -> None:
        """Close idle connections if the file was replaced, so that a replaced file answers for a second at most."""
        self._next_check_s = time.monotonic() + _CHECK_INTERVAL_S
        if any(self._is_replaced(connection) for connection in list(self._idle)):
            self.close_idle()

    def _is_replaced(self, connection: MirrorConnection) -> bool:
        """Return whether another file has this path. A file that was only removed answers until it is too old."""
        try:
            file_stat = os.stat(self.path)
        except OSError:
            return False
        return connection.identity != (file_stat.st_dev, file_stat.st_ino)

    def _check_open(self) -> None:
        if self._is_closed:
            raise MirrorError("This Mirror is closed: create another one.")

    def _open(self) -> MirrorConnection:
        """Open a connection whose file had this path before and after SQLite opened its -wal, so that both match."""
        while True:
            connection = self._connect()
            if not self.was_replaced(connection):
                return connection
            connection.close()

    def _connect(self) -> MirrorConnection:
        self._check_open()
        identity = on_disk.identity(self.path)
        if identity is None:
            raise NotMirrored(f"There is no mirror at {self.path} yet: follow a channel, and synchronise.")
        with raises_mirror_error(self.path):
            connection = sqlite3.connect(
                # Not rwc, which would create an empty file if there is none.
                f"{self.path.as_uri()}?mode=rw",
                uri=True,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
                factory=MirrorConnection,
            )
            connection.identity = identity
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _prepare(self, connection: MirrorConnection) -> None:
        version = on_disk.upgrade(connection)
        if version != SCHEMA_VERSION:
            raise MirrorError(
                f"{self.path} is a mirror of version {version}, but this program supports version {SCHEMA_VERSION}: "
                "use a newer stoplist-client, or another file."
            )
        # A page and its cursor are committed together: after a power failure, the mirror is at most a few pages behind
        # and never wrong. So commits do not wait for the disk.
        connection.execute("PRAGMA synchronous = NORMAL")
        # What an erased person leaves is overwritten, not only released.
        connection.execute("PRAGMA secure_delete = ON").fetchone()
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}").fetchone()


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run this block in a write transaction. Other writers wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has already rolled back.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# A connection of SQLite must not be used after a fork: in the child it does not hold its locks, and would damage the
# file. So idle connections are closed before a fork.
_files: "weakref.WeakSet[MirrorFile]" = weakref.WeakSet()


def _close_before_fork() -> None:
    for file in list(_files):
        file.close_idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_before_fork)
