"""The file of a mirror: made whole or not at all, known by its head, and opened once for each thread that asks."""

import contextlib
import os
import secrets
import sqlite3
import weakref
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from stoplist_client.errors import MirrorError, NotMirrored
from stoplist_client.mirror.trouble import as_mirror_error, told

SCHEMA_VERSION = 1

# "Stpl", by which a mirror is told from any other database.
_APPLICATION_ID = 0x5374706C
_PATIENCE_S = 60.0
# At most, and for each thread that asks at the same time: it holds what is asked of a million records.
_CACHE_KIB = 64 * 1024
_MOST_WAL_BYTES = 64 * 1024 * 1024


class Opened(sqlite3.Connection):
    """A connection, with what was learnt through it: numbers of feeds and groups are good for this one file alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.questions: dict[Any, Any] = {}
        self.identity: tuple[int, int] | None = None
        self.is_outdated = False


class MirrorFile:
    """The file at `path` and the open connections to it. Any number of threads may share this."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Absolute: the program may go to another folder.
        self.path = Path(path).absolute()
        self._idle: list[Opened] = []
        self._is_closed = False
        _files.add(self)

    def make(self) -> None:
        """There is a mirror, readable by this user alone; an existing one is left as it is."""
        self._check_open()
        if not self.exists():
            with _os_errors(self.path):
                _make(self.path)

    def exists(self) -> bool:
        """Whether there is a mirror; MirrorError, and nothing was touched, if there is something else."""
        if not self.path.exists():
            return False
        # By SQLite, and as if it never changed: nothing is written beside it. To open and close it by any other means
        # would take from this process the locks that its other connections hold.
        try:
            with contextlib.closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro&immutable=1", uri=True)) as look:
                (found,) = look.execute("PRAGMA application_id").fetchone()
        except sqlite3.OperationalError as error:
            raise as_mirror_error(error, self.path) from None
        except sqlite3.DatabaseError:
            found = None
        if found != _APPLICATION_ID:
            raise MirrorError(f"{self.path} is no mirror, and was left as it is: name another file.")
        return True

    def take(self) -> Opened:
        """A connection that nobody else uses until it is given back."""
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
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        connection.is_outdated = connection.identity != (found.st_dev, found.st_ino)
        if connection.is_outdated:
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

    def _check_open(self) -> None:
        if self._is_closed:
            raise MirrorError("This Mirror was closed: make another one.")

    def _open(self) -> Opened:
        self._check_open()
        if not self.exists():
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
        found = os.stat(self.path)
        connection.identity = (found.st_dev, found.st_ino)


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


def _make(path: Path) -> None:
    """Made under another name, and given its own when it is whole: whoever finds it finds all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with told(path):
            _fill(draft)
        with contextlib.suppress(FileExistsError):  # another process was quicker: its mirror is as good
            os.link(draft, path)
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + ending).unlink(missing_ok=True)


def _fill(draft: Path) -> None:
    schema = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.executescript(schema)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    finally:
        connection.close()


@contextlib.contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MirrorError(f"No mirror can be made at {path}: {error.strerror}.") from None


# SQLite's connections must not be carried into a child by fork: there they hold none of the locks that they believe to
# hold, and the file would be damaged. So those that are idle are closed before, as servers do that fork their workers.
_files: "weakref.WeakSet[MirrorFile]" = weakref.WeakSet()


def _let_go() -> None:
    for file in list(_files):
        file.close_idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_let_go)
