"""The file of the rows that an import leaves out: CSV with the line number, the error, and the row's own columns.

Source: docs/interface.md section D12.
"""

import csv
import io
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from stoplist.db import Transaction
from stoplist.errors import Refused
from stoplist.lists.imports.model import Import
from stoplist.lists.imports.part_reader import RejectedRow

_MAGIC = b"line,error,"


class RejectsFile:
    """Rejected rows on disk, private to this account.

    Rows are on disk before the part that they belong to is stored, and the import knows how long the file was then:
    after a crash the rest is cut off, so each rejected row is there once.
    """

    def __init__(self, path: Path, header: Sequence[str], *, resumed_bytes: int = 0) -> None:
        """Open the file, or create it with its header. `resumed_bytes`: its length as the import knows it.

        Nothing is cut off yet: another process may still work on the import. Raise Refused if there is a file that is
        not this import's, unless it has nothing but the header, or if the file cannot be written.
        """
        self._path = path
        heading = _lines([("line", "error", *(header or ("address",)))])
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise self._refusal(error) from None
        try:
            self._require_own(heading, resumed_bytes)
            if os.fstat(self._file).st_size < len(heading):
                os.ftruncate(self._file, 0)
                self._write(heading)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            os.close(self._file)
            raise self._refusal(error) from None
        except Refused:
            os.close(self._file)
            raise
        self.header_bytes = len(heading)

    def _require_own(self, heading: bytes, resumed_bytes: int) -> None:
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{self._path} is no file to write rejected rows to: name a new file.")
        beginning = os.pread(self._file, len(heading) + 1, 0)
        # A process that was killed may have written a part of the header, or the header alone.
        is_new = not beginning or (resumed_bytes <= len(heading) and heading.startswith(beginning))
        is_own = 0 < resumed_bytes <= status.st_size and beginning.startswith(_MAGIC)
        if not is_new and not is_own:
            raise Refused(f"There is another file at {self._path}: name a new one for the rejected rows.")

    def cut_off(self, known_bytes: int) -> None:
        """Cut off what is not of a part that was stored; `known_bytes` is the length that the import knows."""
        try:
            length = max(known_bytes, self.header_bytes)
            if os.fstat(self._file).st_size > length:
                os.ftruncate(self._file, length)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise self._refusal(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    async def append(self, rows: Sequence[RejectedRow]) -> int:
        """Write the rows, sync them to disk, and return the length of the file."""
        try:
            if rows:
                self._write(_lines([(str(row.line), row.text, *row.cells) for row in rows]))
                os.fsync(self._file)
            return os.fstat(self._file).st_size
        except OSError as error:
            text = self._refusal(error).text
            raise Refused(f"{text} Make room, then `stoplist import resume` goes on.") from None

    async def store(self, transaction: Transaction, before: Import) -> None:
        """Do nothing: the rows are on disk before their part is stored."""

    def _refusal(self, error: OSError) -> Refused:
        return Refused(f"The rejected rows cannot be written to {self._path}: {error.strerror}.")

    def _write(self, content: bytes) -> None:
        while content:
            content = content[os.write(self._file, content) :]


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")
