"""A small file that only its owner can read, replaced atomically and durably, and locked between processes.

Errors are TokenStoreError with a message that says what would be right. The content may be anything.
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
from stoplist_client.files.folder_error import folder_error

FOLDER_VARIABLE = "STOPLISTCLIENT_DIR"

_MAX_BYTES = 1 << 16
_IS_POSIX = sys.platform != "win32"


def default_folder() -> Path:
    """Return the folder of this user's client files: STOPLISTCLIENT_DIR, or else that of the platform."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    import click  # noqa: PLC0415 - slow to import, and rarely needed

    # Not a folder that Windows copies to other machines: a refresh token in two places would be presented twice.
    return Path(click.get_app_dir("stoplist-client", roaming=False))


class PrivateFile:
    """A private file. Its folder is created if it does not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Resolved, so that chdir does not change the file, and a link and its target share one file and one lock: a
        # rename would replace the link, and leave a refresh token without its mark at the target.
        self.path = Path(os.path.realpath(path))

    def __repr__(self) -> str:
        return f"PrivateFile({os.fspath(self.path)!r})"

    def read(self) -> bytes | None:
        """Return the content, or None if there is no file. Raises TokenStoreError if others may read the file."""
        with self._errors("read"):
            try:
                self._check_folder()
                descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            except FileNotFoundError:
                return None
            try:
                self._check_file(os.fstat(descriptor))
                return os.read(descriptor, _MAX_BYTES)
            finally:
                os.close(descriptor)

    def write(self, content: bytes) -> None:
        """Replace the file atomically, and return when the new content is on disk.

        Only the holder of the lock may write. Temporary files of killed writers are removed.
        """
        with self._errors("written"):
            self._make_folder()
            self._remove_leftovers()
            temporary = self.path.with_name(f"{self._prefix}{secrets.token_hex(8)}")
            try:
                _write_new(temporary, content)
                os.replace(temporary, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            _sync_folder(self.path.parent)

    def remove(self) -> bool:
        """Remove the file, and return whether there was one. The lock file stays, or two holders could lock it."""
        with self._errors("removed"):
            try:
                self.path.unlink()
            except FileNotFoundError:
                return False
            _sync_folder(self.path.parent)
            return True

    def try_lock(self) -> Callable[[], None] | None:
        """Return a function that releases the lock of this file, or None at once if it is held.

        The lock excludes threads and tasks of this process too, and ends with the process that holds it.
        """
        from stoplist_client.files import file_lock  # noqa: PLC0415 - filelock is slow to import, and rarely needed

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
                folder.chmod(0o700)  # restores what the umask removed
        self._check_folder()

    def _check_folder(self) -> None:
        """Raise TokenStoreError if others may write to the folder: they could restore old tokens or remove the lock."""
        folder = self.path.parent
        file_stat = os.stat(folder)
        if not _IS_POSIX or not stat.S_ISDIR(file_stat.st_mode):
            return
        if file_stat.st_uid not in (os.geteuid(), 0):
            raise TokenStoreError(
                f"{folder} belongs to another user: run as that user, or name another folder with {FOLDER_VARIABLE}."
            )
        if file_stat.st_mode & 0o022:
            raise TokenStoreError(
                f"{folder} is the folder for tokens, but other users may write to it: chmod go-w it, or name another "
                f"folder with {FOLDER_VARIABLE}."
            )

    def _remove_leftovers(self) -> None:
        for name in os.listdir(self.path.parent):
            if name.startswith(self._prefix):
                with contextlib.suppress(OSError):
                    os.unlink(self.path.parent / name)

    def _check_file(self, file_stat: os.stat_result) -> None:
        if not stat.S_ISREG(file_stat.st_mode):
            raise TokenStoreError(f"{self.path} is not a file: move it away, or use another path.")
        if not _IS_POSIX:
            return
        if file_stat.st_uid != os.geteuid():
            raise TokenStoreError(
                f"{self.path} belongs to another user: run as that user, or name another folder with {FOLDER_VARIABLE}."
            )
        if file_stat.st_mode & 0o077:
            raise TokenStoreError(
                f"{self.path} contains tokens, but other users may read it: chmod 600 it, or name another folder with "
                f"{FOLDER_VARIABLE} if this file system does not keep modes."
            )

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, NotADirectoryError) as failure:
            raise TokenStoreError(
                f"{self.path} cannot be {action}: {folder_error(self.path.parent, failure)}. Move it away, or name "
                f"another folder with {FOLDER_VARIABLE}."
            ) from None
        except OSError as failure:
            raise TokenStoreError(
                f"{self.path} cannot be {action} ({failure.strerror or type(failure).__name__}): correct that, name a "
                f"folder that this user may write to with {FOLDER_VARIABLE}, or use MemoryStore()."
            ) from None


def _write_new(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Write the folder's entries to disk. Otherwise a power cut could restore the old file."""
    if not _IS_POSIX:
        return  # Windows has no such call, and does not need it
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
