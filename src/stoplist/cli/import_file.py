"""The file of an import. What cannot be rewound is first copied to a temporary file, while the event loop only waits.

A pipe may stand still for minutes: while it is read, no transaction must be open, and Ctrl+C must end the command. A
file is read more than once, too. Source: docs/interface.md section D12.
"""

import asyncio
import os
import stat
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stoplist.cli.import_output import STANDARD_INPUT_NAME
from stoplist.cli.progress import ProgressDisplay, WorkProgress
from stoplist.errors import Refused

STANDARD_INPUT = "-"

_READ_BYTES = 1 << 20
_REPORT_EVERY_S = 1.0


@asynccontextmanager
async def opened_file(name: str, display: ProgressDisplay) -> AsyncIterator[BinaryIO]:
    """Yield the file of this name, or the standard input for `-`; it can be rewound.

    Raise Refused if it cannot be read.
    """
    if name != STANDARD_INPUT:
        with _regular_file(name) as file:
            yield file
        return
    if sys.stdin is None:
        raise Refused("The standard input is closed: name a file.")
    source = sys.stdin.buffer
    if source.seekable() and source.tell() == 0:
        yield source
        return
    with tempfile.TemporaryFile(prefix="stoplist-") as file:
        await _copy(source.fileno(), file, display)
        yield file


def shown_name(name: str) -> str:
    """Return the name by which an import remembers its file."""
    return STANDARD_INPUT_NAME if name == STANDARD_INPUT else Path(name).name


class RowEstimate:
    """Estimates the number of rows of a file by how much of it was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        self._all_rows: int | None = None

    def after(self, rows: int) -> int | None:
        """Return the number of all rows, after `rows` of them; None while nothing tells."""
        read = self._file.tell()
        # Once everything is read, an unknown number of rows is still to come of the last block.
        if 0 < read < self._size:
            self._all_rows = round(rows * self._size / read)
        return None if self._all_rows is None else max(rows + 1, self._all_rows)


def _regular_file(name: str) -> BinaryIO:
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISREG(mode):
            return open(name, "rb")
    except OSError as error:
        raise Refused(f"{name} cannot be read: {error.strerror}.") from None
    if stat.S_ISDIR(mode):
        raise Refused(f"{name} is a folder: name a file.")
    raise Refused(f"{name} can be read only once: use - as FILE, and redirect the standard input, as with < {name}.")


async def _copy(source: int, target: BinaryIO, display: ProgressDisplay) -> None:
    copying = _Copying(source, target, asyncio.get_running_loop())
    copying.start()
    while not copying.is_done.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_REPORT_EVERY_S):
                await copying.is_done.wait()
        display.report(WorkProgress("Reading", copying.copied_bytes // 1_000_000, None, unit="MB"))
    if copying.error is not None:
        raise Refused(
            f"The standard input cannot be copied to {tempfile.gettempdir()}: {copying.error.strerror}. "
            "TMPDIR names another folder."
        )
    target.seek(0)


class _Copying(threading.Thread):
    """Copies a descriptor to a file. A daemon: nothing waits for a pipe that stands still when the command ends."""

    def __init__(self, source: int, target: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="standard input", daemon=True)
        self.is_done = asyncio.Event()
        self.copied_bytes = 0
        self.error: OSError | None = None
        self._source, self._target, self._loop = source, target, loop

    def run(self) -> None:
        """Copy up to the end."""
        try:
            # Not by sys.stdin.buffer, whose lock a thread that waits would keep at the end of the process.
            while data := os.read(self._source, _READ_BYTES):
                self._target.write(data)
                self.copied_bytes += len(data)
            self._target.flush()
        except OSError as error:
            self.error = error
        except ValueError:  # the target was closed: the command has ended
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.is_done.set)
