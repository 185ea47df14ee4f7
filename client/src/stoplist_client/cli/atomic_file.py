"""A file that appears under its name when it is complete, and not before, whatever happens to the process."""

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


def check_apart(paths: Sequence[Path]) -> None:
    """Wrong usage where two of these paths are one file."""
    for at, path in enumerate(paths):
        for other in paths[:at]:
            if path.resolve() == other.resolve() or _is_same(path, other):
                raise click.UsageError(f"{other} and {path} are the same file: name another.")


def clear(paths: Sequence[Path]) -> None:
    """None of these files is there, lest an old one be used by mistake where no new one comes about."""
    for path in paths:
        if path.is_file():
            os.unlink(os.path.realpath(path))


class AtomicFile:
    """Written beside its path; `finish` gives it its name. Left without that, it is removed.

    It may be read by whoever may read `like`. Failed where there is a file already, unless it `replaces` that.
    """

    def __init__(self, path: Path, *, like: BinaryIO, replaces: bool) -> None:
        self._path, self._replaces = path, replaces
        if path.exists() and not path.is_file():
            raise Failed(f"{path} is no ordinary file: name another.")
        if not replaces and os.path.lexists(path):
            raise self._is_there()
        self._place = Path(os.path.realpath(path))  # what a link leads to is replaced, and not the link
        folder = self._place.parent
        if not folder.is_dir():
            raise Failed(f"There is no folder {folder}: make it first.")
        descriptor, self._name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=folder)
        self.stream = cast(BinaryIO, open(descriptor, "wb"))  # noqa: SIM115 - closed with this
        found = os.fstat(like.fileno())
        if stat.S_ISREG(found.st_mode) and hasattr(os, "fchmod"):
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o666)

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
        """The file is complete, on the disk, under its name."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        if self._replaces:
            os.replace(self._name, self._place)
            return
        try:
            # Unlike a rename, a link never takes the place of a file that came meanwhile.
            os.link(self._name, self._place)
        except FileExistsError:
            raise self._is_there() from None
        except OSError:  # a file system without links
            if os.path.lexists(self._place):
                raise self._is_there() from None
            os.replace(self._name, self._place)

    def _is_there(self) -> Failed:
        return Failed(f"{self._path} is there already: name another file, or say --force.")


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
