"""What lies on the disk under the name of a mirror: known by its head, this user's alone, made whole or not at all."""

import contextlib
import os
import secrets
import sqlite3
import stat
import sys
from importlib import resources
from pathlib import Path

from stoplist_client.errors import MirrorError
from stoplist_client.mirror.mirror_errors import as_mirror_error, told

SCHEMA_VERSION = 1

# "Stpl", by which a mirror is told from any other database.
_APPLICATION_ID = 0x5374706C
# What SQLite keeps beside a file of the name. It takes whatever it finds there for that file's, and writes it into it.
_BESIDE = ("-wal", "-shm", "-journal")
_IS_POSIX = sys.platform != "win32"


def identity(path: Path) -> tuple[int, int] | None:
    """By what the mirror there is told from one that is put in its place; None where there is nothing.

    MirrorError, and nothing was touched: for what is no mirror; for one that others could have written into; and where
    it was removed, but not what belongs to it.
    """
    found = _found(path)
    if found is None and any(_beside(path)):
        found = _found(path)  # it may be one that was made this moment
        if found is None:
            raise _removed_in_part(path)
    if found is None:
        return None
    if _IS_POSIX:
        _check_owner({path: found} | _beside(path))
    _check_head(path)
    return found.st_dev, found.st_ino


def make(path: Path) -> None:
    """There is a mirror, readable by this user alone. An existing one is left as it is."""
    try:
        # Under another name, and given its own when it is whole: whoever finds it finds all of it.
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with told(path):
                _fill(draft)
            with contextlib.suppress(FileExistsError):  # another process was quicker: its mirror is as good
                os.link(draft, path)
        finally:
            for ending in ("", *_BESIDE):
                draft.with_name(draft.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise MirrorError(f"No mirror can be made at {path}: {error.strerror}.") from None


def _found(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MirrorError(f"The mirror {path} cannot be opened: {error.strerror}.") from None


def _beside(path: Path) -> dict[Path, os.stat_result]:
    names = [path.with_name(path.name + ending) for ending in _BESIDE]
    return {name: found for name in names if (found := _found(name)) is not None}


def _removed_in_part(path: Path) -> MirrorError:
    beside = " and ".join(map(str, _beside(path)))
    return MirrorError(
        f"The mirror {path} was removed, but not what belongs to it: end what still uses it, remove {beside} too, then "
        "follow again what it followed, and synchronise. Send nothing until that is done."
    )


def _check_owner(files: dict[Path, os.stat_result]) -> None:
    """Whoever can write into it decides whom this user sends to."""
    for path, found in files.items():
        if found.st_uid != os.geteuid():
            raise MirrorError(f"{path} belongs to another user: run as that user, or name another file.")
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o022:
            raise MirrorError(
                f"Others may write to {path}, and so decide whom this user sends to: chmod 600 it, if nobody did; else "
                "remove the mirror and what lies beside it, follow again what it followed, and synchronise."
            )


def _check_head(path: Path) -> None:
    # By SQLite, and as if it never changed: nothing is written beside it. To open and close it by any other means
    # would take from this process the locks that its other connections hold.
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as look:
            (application_id,) = look.execute("PRAGMA application_id").fetchone()
    except sqlite3.OperationalError as error:
        raise as_mirror_error(error, path) from None
    except sqlite3.DatabaseError:
        application_id = None
    if application_id != _APPLICATION_ID:
        raise MirrorError(f"{path} is no mirror, and was left as it is: name another file.")


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
