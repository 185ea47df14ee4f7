"""A file that appears under its name only when it is complete, even if the process is killed."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

import click

from stoplist_client.cli.exit_status import Failed


def require_distinct(paths: Sequence[Path]) -> None:
    """Raise UsageError if two of these paths are the same file."""
    for index, path in enumerate(paths):
        for other in paths[:index]:
            if path.resolve() == other.resolve() or _is_same_file(path, other):
                raise click.UsageError(f"{other} and {path} are the same file: use different files.")


def remove_files(paths: Sequence[Path]) -> None:
    """Remove these files, so that no old one is used by mistake if the command fails."""
    for path in paths:
        if path.is_file():
            os.unlink(os.path.realpath(path))


class AtomicFile:
    """A temporary file beside its path. `finish` renames it to the path; without `finish`, it is removed on exit.

    Takes the permissions of `like`. Raises Failed if the path exists, unless `replaces` is set.
    """

    def __init__(self, path: Path, *, like: BinaryIO, replaces: bool) -> None:
        self._path, self._replaces = path, replaces
        if path.exists() and not path.is_file():
            raise Failed(f"{path} is not a regular file: use another path.")
        if not replaces and os.path.lexists(path):
            raise self._already_exists()
        self._target = Path(os.path.realpath(path))  # replaces the target of a link, not the link
        folder = self._target.parent
        if not folder.is_dir():
            raise Failed(f"There is no folder {folder}: create it first.")
        descriptor, self._name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=folder)
        self.stream = cast(BinaryIO, open(descriptor, "wb"))  # noqa: SIM115 - closed on exit
        like_stat = os.fstat(like.fileno())
        if stat.S_ISREG(like_stat.st_mode) and hasattr(os, "fchmod"):
            os.fchmod(descriptor, stat.S_IMODE(like_stat.st_mode) & 0o666)

    def __enter__(self) -> "AtomicFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name)

    def finish(self) -> None:
        """Flush the file to disk and give it its name. Raises Failed if another file has that name meanwhile."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        if self._replaces:
            os.replace(self._name, self._target)
            return
        try:
            # Unlike a rename, a link never replaces a file that was created meanwhile.
            os.link(self._name, self._target)
        except FileExistsError:
            raise self._already_exists() from None
        except OSError:  # a file system without links
            if os.path.lexists(self._target):
                raise self._already_exists() from None
            os.replace(self._name, self._target)

    def _already_exists(self) -> Failed:
        return Failed(f"{self._path} already exists: use another file, or add --force.")


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
