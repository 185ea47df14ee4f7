"""The file of a mirror, opened once for each thread that asks, and never another file than the one that lies there."""

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
from stoplist_client.mirror.mirror_errors import told
from stoplist_client.mirror.on_disk import SCHEMA_VERSION

_PATIENCE_S = 60.0
# At most, and for each thread that asks at the same time: it holds what is asked of a million records.
_CACHE_KIB = 64 * 1024
_MOST_WAL_BYTES = 64 * 1024 * 1024
# So often somebody who asks looks whether another file lies there by now: it costs a microsecond.
_LOOKS_EVERY_S = 1.0


class Opened(sqlite3.Connection):
    """A connection, with what was learnt through it: numbers of feeds and groups are good for this one file alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.prepared: dict[Any, Any] = {}
        # For questions about one address: to make a cursor for each takes a twelfth of the time that it is asked in.
        self.single = self.cursor()
        self.identity: tuple[int, int] | None = None
        self.is_outdated = False


class MirrorFile:
    """The file at `path` and the open connections to it. Any number of threads may share this."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Absolute: the program may go to another folder.
        self.path = Path(path).absolute()
        self._idle: list[Opened] = []
        self._is_closed = False
        self._looks_at_s = 0.0
        _files.add(self)

    def make(self) -> None:
        """There is a mirror, readable by this user alone; an existing one is left as it is."""
        self._check_open()
        if not self.exists():
            on_disk.make(self.path)

    def exists(self) -> bool:
        """Whether there is a mirror; MirrorError, and nothing was touched, if there is something else."""
        return on_disk.identity(self.path) is not None

    def take(self) -> Opened:
        """A connection that nobody else uses until it is given back."""
        if time.monotonic() >= self._looks_at_s:
            self._look()
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def give_back(self, connection: Opened) -> None:
        """The connection may serve others."""
        if connection.is_outdated:
            connection.close()
            return
        self._idle.append(connection)
        if self._is_closed:
            self.close_idle()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Opened]:
        """A connection for a few statements."""
        connection = self.take()
        try:
            with told(self.path):
                yield connection
        finally:
            self.give_back(connection)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Opened]:
        """A connection of one's own."""
        connection = self._open()
        try:
            with told(self.path):
                yield connection
        finally:
            connection.close()

    def was_replaced(self, connection: Opened) -> bool:
        """Whether another file lies there than the connection's, as after a repair; if so, that one is opened next."""
        if not connection.is_outdated and self._is_other(connection):
            connection.is_outdated = True
            self.close_idle()
        return connection.is_outdated

    def close(self) -> None:
        """Nothing is open any more, but for what other threads are in the middle of. May be repeated."""
        self._is_closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Connections that nobody uses just now are closed; who asks next opens another."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _look(self) -> None:
        """However old the mirror may be: what was replaced is asked for a second more, and not for ever."""
        self._looks_at_s = time.monotonic() + _LOOKS_EVERY_S
        if any(self._is_other(connection) for connection in list(self._idle)):
            self.close_idle()

    def _is_other(self, connection: Opened) -> bool:
        """A file that was only removed goes on answering until there is another one, or it is too old."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return connection.identity != (found.st_dev, found.st_ino)

    def _check_open(self) -> None:
        if self._is_closed:
            raise MirrorError("This Mirror was closed: make another one.")

    def _open(self) -> Opened:
        """One whose file was there before SQLite looked for its -wal, and is still: so the two belong together."""
        while True:
            connection = self._connected()
            if not self.was_replaced(connection):
                return connection
            connection.close()

    def _connected(self) -> Opened:
        self._check_open()
        identity = on_disk.identity(self.path)
        if identity is None:
            raise NotMirrored(f"There is no mirror at {self.path} yet: follow something, and synchronise.")
        with told(self.path):
            connection = sqlite3.connect(
                # Without rwc: who opens it never makes it, and so never leaves an empty one behind.
                f"{self.path.as_uri()}?mode=rw",
                uri=True,
                timeout=_PATIENCE_S,
                isolation_level=None,
                check_same_thread=False,
                factory=Opened,
            )
            connection.identity = identity
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _prepare(self, connection: Opened) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise MirrorError(
                f"{self.path} is a mirror of version {version}, and this program knows {SCHEMA_VERSION}: "
                "use a newer stoplist-client, or another file."
            )
        # A page and its cursor are committed together: after a power failure the mirror is at most a few pages behind,
        # never wrong, so that no commit needs to wait for the disk.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {_MOST_WAL_BYTES}").fetchone()


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing of what is written within; others that write wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # On some errors SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# SQLite's connections must not be carried into a child by fork: there they hold none of the locks that they believe to
# hold, and the file would be damaged. So those that are idle are closed before, as servers do that fork their workers.
_files: "weakref.WeakSet[MirrorFile]" = weakref.WeakSet()


def _let_go() -> None:
    for file in list(_files):
        file.close_idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_let_go)
