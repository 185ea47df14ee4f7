"""A progress bar: one line on stderr that is overwritten. Shown on terminals only."""

import contextlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO

_MIN_INTERVAL_S = 0.1


class ProgressBar:
    """Shows `label  52% [#####     ] text`, or `label text` if `fraction` returns None. Erased on exit."""

    def __init__(self, label: str, fraction: Callable[[], float | None]) -> None:
        self._label, self._fraction = label, fraction
        self._stream = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._shown_s = -_MIN_INTERVAL_S

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send("\r\x1b[K")

    def show(self, text: str) -> None:
        """Show this text, unless the line was updated within the last 0.1 s."""
        now_s = time.monotonic()
        if self._stream is None or now_s - self._shown_s < _MIN_INTERVAL_S:
            return
        self._shown_s = now_s
        fraction = self._fraction()
        part = "" if fraction is None else f" {fraction:>4.0%} [{'#' * round(10 * fraction):<10}]"
        # A line that wraps could not be overwritten.
        line = f"{self._label}{part} {text}"[: shutil.get_terminal_size().columns - 1]
        self._send(f"\r{line}\x1b[K")

    def _send(self, text: str) -> None:
        # A closed terminal must not stop the work.
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()


def fraction_read(stream: BinaryIO) -> float | None:
    """Return the fraction of a file that was read, from 0 to 1, or None if it is not a regular file."""
    try:
        file_stat = os.fstat(stream.fileno())
        if not stat.S_ISREG(file_stat.st_mode) or not file_stat.st_size:
            return None
        return min(stream.tell() / file_stat.st_size, 1.0)
    except (OSError, ValueError):
        return None
