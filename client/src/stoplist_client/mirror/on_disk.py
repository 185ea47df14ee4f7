"""The file of a mirror on disk: recognised by its header, owned by this user, and created atomically."""

import contextlib
import os
import secrets
import sqlite3
import stat
import sys
from importlib import resources
from pathlib import Path

from stoplist_client.errors import MirrorError
from stoplist_client.files.folder_error import folder_error
from stoplist_client.mirror.mirror_errors import as_mirror_error, raises_mirror_error

SCHEMA_VERSION = 3

# Each makes a file of that version one of the next.
_UPGRADES = {
    1: """
ALTER TABLE feeds ADD COLUMN diverged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE feeds ADD COLUMN reread_s REAL;
ALTER TABLE copies ADD COLUMN digest TEXT;
ALTER TABLE copies ADD COLUMN verified_s REAL;
ALTER TABLE copies ADD COLUMN is_reread INTEGER NOT NULL DEFAULT 0;
""",
    2: """
ALTER TABLE feeds ADD COLUMN digest_key TEXT;
""",
}

# "Stpl", which distinguishes a mirror from other databases.
_APPLICATION_ID = 0x5374706C
# The files that SQLite keeps beside a database. It would write leftovers of another database into this one.
_SIDECAR_SUFFIXES = ("-wal", "-shm", "-journal")
_IS_POSIX = sys.platform != "win32"


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the mirror, or None if there is no file.

    Raises MirrorError, without any change, if the file is not a mirror, if others may write to it or to its folder,
    or if it was removed without its sidecar files.
    """
    file_stat = _stat_if_any(path)
    if file_stat is None and any(_sidecar_files(path)):
        file_stat = _stat_if_any(path)  # may have been created just now
        if file_stat is None:
            raise _partly_removed_error(path)
    if file_stat is None:
        return None
    if _IS_POSIX:
        _check_folder(path.parent)
        _check_owner({path: file_stat} | _sidecar_files(path))
    _check_header(path)
    return file_stat.st_dev, file_stat.st_ino


def create(path: Path) -> None:
    """Create a mirror, readable by this user only, unless it exists."""
    try:
        # Created under a temporary name and linked when it is complete, so that nobody sees an incomplete mirror.
        path.parent.mkdir(parents=True, exist_ok=True)
        if _IS_POSIX:
            _check_folder(path.parent)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with raises_mirror_error(path):
                _create_schema(draft)
            with contextlib.suppress(FileExistsError):  # another process was faster, and its mirror is equivalent
                os.link(draft, path)
        finally:
            for ending in ("", *_SIDECAR_SUFFIXES):
                draft.with_name(draft.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise MirrorError(f"The mirror {path} cannot be created: {folder_error(path.parent, error)}.") from None


def upgrade(connection: sqlite3.Connection) -> int:
    """Bring a mirror of an earlier version to this one, whole or not at all; return its version."""
    version = _version(connection)
    if version not in _UPGRADES:
        return version
    connection.execute("BEGIN IMMEDIATE")
    try:
        while (version := _version(connection)) in _UPGRADES:  # another process may have been faster
            for statement in _UPGRADES[version].strip().splitlines():
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return version


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _stat_if_any(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MirrorError(f"The mirror {path} cannot be opened: {error.strerror}.") from None


def _sidecar_files(path: Path) -> dict[Path, os.stat_result]:
    names = [path.with_name(path.name + ending) for ending in _SIDECAR_SUFFIXES]
    return {name: file_stat for name in names if (file_stat := _stat_if_any(name)) is not None}


def _partly_removed_error(path: Path) -> MirrorError:
    beside = " and ".join(map(str, _sidecar_files(path)))
    return MirrorError(
        f"The mirror {path} was removed, but not the files that belong to it: end all processes that use it, remove "
        f"{beside} too, follow the same feeds again, and synchronise. Send nothing until that is done."
    )


def _check_folder(folder: Path) -> None:
    """Raise MirrorError if others may write to the folder: they could replace the mirror, or remove its -wal file."""
    folder_stat = os.stat(folder)
    if folder_stat.st_uid not in (os.geteuid(), 0):
        raise MirrorError(f"{folder}, the folder of the mirror, belongs to another user: use a folder of your own.")
    if folder_stat.st_mode & 0o022:
        raise MirrorError(
            f"Other users may write to {folder}, the folder of the mirror, and so decide whom this user sends to: "
            "chmod go-w it, or use a folder of your own."
        )


def _check_owner(files: dict[Path, os.stat_result]) -> None:
    """Raise MirrorError if others may write to these files, and so decide whom this user sends to."""
    for path, file_stat in files.items():
        if file_stat.st_uid != os.geteuid():
            raise MirrorError(f"{path} belongs to another user: run as that user, or use another file.")
        if stat.S_ISREG(file_stat.st_mode) and file_stat.st_mode & 0o022:
            raise MirrorError(
                f"Other users may write to {path}, and so decide whom this user sends to. If nobody did, chmod 600 it; "
                "otherwise remove the mirror with its -wal and -shm files, follow the same feeds again, and sync."
            )


def _check_header(path: Path) -> None:
    # Read with SQLite and immutable=1, so that nothing is written beside the file. Opening and closing the file in any
    # other way would release the locks of this process's other connections.
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.OperationalError as error:
        raise as_mirror_error(error, path) from None
    except sqlite3.DatabaseError:
        application_id = None
    if application_id != _APPLICATION_ID:
        raise MirrorError(f"{path} is not a mirror, and was left unchanged: use another file.")


def _create_schema(draft: Path) -> None:
    schema = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.executescript(schema)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    finally:
        connection.close()
