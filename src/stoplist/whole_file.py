"""Files that are complete and durable under their name, or absent: backups and exports.

A file is written under another name, locked meanwhile, and gets its name by a hard link, which unlike a rename never
replaces a file. What a killed process left is removed by the next one that writes the same file.
Source: docs/interface.md sections D9 and D12.
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoplist.errors import Refused
from stoplist.folders import file_in_place_of_folder


@contextmanager
def whole_file(target: Path, noun: str) -> Iterator[tuple[Path, int]]:
    """Create an empty file with mode 0600; yield its path and descriptor. It becomes `target` when the context ends.

    After an exception nothing is left at either name. `noun` names the file in errors: `backup`. Raise Refused if
    `target` exists or cannot be written, or if another process is writing it.
    """
    try:
        require_free_name(target, noun)
        _remove_interrupted(target, noun)
        with _partial_file(target, noun) as (partial, file):
            yield partial, file
            os.fsync(file)
            _link(partial, target, noun)
        _sync_folder(target.parent)
    except OSError as error:
        raise Refused(f"The {noun} cannot be written at {target}: {error.strerror}.") from None


def require_free_name(target: Path, noun: str) -> None:
    """Raise Refused if something is at `target`, or if its folder does not exist."""
    if os.path.lexists(target):
        raise Refused(f"{target} exists already, and {_a(noun)} overwrites nothing: name another file.")
    if file := file_in_place_of_folder(target.parent):
        raise Refused(f"{file} is a file, not a folder: name a file in a folder.")
    if not target.parent.is_dir():
        raise Refused(f"There is no folder {target.parent}: create it first, or name another file.")


def _remove_interrupted(target: Path, noun: str) -> None:
    """Remove what interrupted processes left of `target`. Raise Refused while another process writes it."""
    for partial in target.parent.glob(f"{_escape_glob(target.name)}.partial-????????"):
        with suppress(FileNotFoundError):
            with partial.open("rb") as file:
                _lock(file.fileno(), target, noun)
            partial.unlink()


@contextmanager
def _partial_file(target: Path, noun: str) -> Iterator[tuple[Path, int]]:
    """Create an empty file with a unique name, locked within this context and removed afterwards."""
    partial = target.with_name(f"{target.name}.partial-{secrets.token_hex(4)}")
    file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _lock(file, target, noun)
        yield partial, file
    finally:
        partial.unlink(missing_ok=True)
        os.close(file)


def _lock(file: int, target: Path, noun: str) -> None:
    """Lock a partial file. The lock ends with its process, so a locked file belongs to a running one."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused(f"Another {noun} to {target} is running: wait for it, or name another file.") from None


def _link(partial: Path, target: Path, noun: str) -> None:
    try:
        os.link(partial, target)
    except FileExistsError:
        raise Refused(f"{target} exists by now, and {_a(noun)} overwrites nothing: name another file.") from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        raise Refused(
            f"The file system of {target.parent} has no hard links, which {_a(noun)} needs to appear complete: "
            "name a file on another file system, and copy it from there."
        ) from None


def _sync_folder(folder: Path) -> None:
    """Make the name durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _escape_glob(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
