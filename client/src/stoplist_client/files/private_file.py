"""A small file that its owner alone can read, replaced as a whole and durably, and locked over all processes.

It knows nothing of tokens. What is wrong with the place is a TokenStoreError that says what would be right.
"""

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from stoplist_client.errors import TokenStoreError

FOLDER_VARIABLE = "STOPLISTCLIENT_DIR"

_MOST_BYTES = 1 << 16
_IS_POSIX = sys.platform != "win32"


def default_folder() -> Path:
    """Where this user's files of the client are: what STOPLISTCLIENT_DIR names, or else as the platform has it."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    import click  # noqa: PLC0415 - costs as much as all of ours, and few need it

    # Not where Windows takes it along to other machines: a refresh token that is in two places is presented twice.
    return Path(click.get_app_dir("stoplist-client", roaming=False))


class PrivateFile:
    """One such file. Its folder is made where there is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # So that no chdir makes another file of it, and a link and what it leads to are one, with one lock: a rename
        # would replace the link, and leave a refresh token without its mark where it leads to.
        self.path = Path(os.path.realpath(path))

    def __repr__(self) -> str:
        return f"PrivateFile({os.fspath(self.path)!r})"

    def read(self) -> bytes | None:
        """What was written last; None where there is nothing. A file that others may read is refused."""
        with self._errors("read"):
            try:
                self._check_folder()
                descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            except FileNotFoundError:
                return None
            try:
                self._check(os.fstat(descriptor))
                return os.read(descriptor, _MOST_BYTES)
            finally:
                os.close(descriptor)

    def write(self, content: bytes) -> None:
        """When this returns the content is on the disk under this name; until then the old content is.

        Only the holder of the lock may write: what writers that were killed left behind is removed.
        """
        with self._errors("written"):
            self._make_folder()
            self._remove_leftovers()
            unfinished = self.path.with_name(f"{self._prefix}{secrets.token_hex(8)}")
            try:
                _write_new(unfinished, content)
                os.replace(unfinished, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
                raise
            _sync_folder(self.path.parent)

    def remove(self) -> bool:
        """The file is gone; whether there was one. Its lock stays: to remove that too would let two hold it."""
        with self._errors("removed"):
            try:
                self.path.unlink()
            except FileNotFoundError:
                return False
            _sync_folder(self.path.parent)
            return True

    def try_lock(self) -> Callable[[], None] | None:
        """What lets go of the lock of this file; None at once where somebody else holds it.

        It excludes threads and tasks of this process as well, and ends with the process that holds it.
        """
        from stoplist_client.files import file_lock  # noqa: PLC0415 - filelock is slow to import, and few lock

        with self._errors("locked"):
            self._make_folder()
            release = file_lock.try_lock(self.path.with_name(f"{self.path.name}.lock"))
        return None if release is None else partial(self._unlock, release)

    def _unlock(self, release: Callable[[], None]) -> None:
        with self._errors("unlocked"):
            release()

    @property
    def _prefix(self) -> str:
        return f".{self.path.name}."

    def _make_folder(self) -> None:
        folder, missing = self.path.parent, []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                folder.chmod(0o700)  # whatever the umask has taken away
        self._check_folder()

    def _check_folder(self) -> None:
        """Whoever may rename in it can put old tokens in place of new ones, or take the lock away."""
        folder = self.path.parent
        found = os.stat(folder)
        if not _IS_POSIX or not stat.S_ISDIR(found.st_mode):
            return
        if found.st_uid not in (os.geteuid(), 0):
            raise TokenStoreError(
                f"{folder} belongs to another user: run as that user, or name another folder with {FOLDER_VARIABLE}."
            )
        if found.st_mode & 0o022:
            raise TokenStoreError(
                f"{folder} is to hold tokens, and others may write to it: chmod go-w it, or name another folder with "
                f"{FOLDER_VARIABLE}."
            )

    def _remove_leftovers(self) -> None:
        for name in os.listdir(self.path.parent):
            if name.startswith(self._prefix):
                with contextlib.suppress(OSError):
                    os.unlink(self.path.parent / name)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise TokenStoreError(f"{self.path} is not a file: move it away, or name another place.")
        if not _IS_POSIX:
            return
        if found.st_uid != os.geteuid():
            raise TokenStoreError(
                f"{self.path} belongs to another user: run as that user, or name another folder with {FOLDER_VARIABLE}."
            )
        if found.st_mode & 0o077:
            raise TokenStoreError(
                f"{self.path} holds tokens and others may read it: chmod 600 it, or name another folder with "
                f"{FOLDER_VARIABLE} where the file system does not keep modes."
            )

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, NotADirectoryError):
            raise TokenStoreError(
                f"{self.path} cannot be {what}, since {self.path.parent} is no folder: move away what is there, or "
                f"name another folder with {FOLDER_VARIABLE}."
            ) from None
        except OSError as failure:
            raise TokenStoreError(
                f"{self.path} cannot be {what} ({failure.strerror or type(failure).__name__}): mend that, name a "
                f"folder that this user may write to with {FOLDER_VARIABLE}, or use MemoryStore()."
            ) from None


def _write_new(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """The names in the folder are on the disk; without it a power cut may bring the old file back."""
    if not _IS_POSIX:
        return  # there is no such call, and the file system sees to it
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
