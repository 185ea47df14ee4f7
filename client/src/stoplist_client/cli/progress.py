"""How far a command is, on stderr: one line that is written over, where people look on. Elsewhere nothing."""

import contextlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO

_PAUSE_S = 0.1


class Bar:
    """`doing  52% [#####     ] told`; without a share where the end is not known. Gone when it is closed."""

    def __init__(self, doing: str, share: Callable[[], float | None]) -> None:
        self._doing, self._share = doing, share
        self._stream = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._shown_s = -_PAUSE_S

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send("\r\x1b[K")

    def show(self, told: str) -> None:
        """Show this, unless something was shown just now."""
        now_s = time.monotonic()
        if self._stream is None or now_s - self._shown_s < _PAUSE_S:
            return
        self._shown_s = now_s
        share = self._share()
        part = "" if share is None else f" {share:>4.0%} [{'#' * round(10 * share):<10}]"
        # A line that is broken in two would not be written over.
        line = f"{self._doing}{part} {told}"[: shutil.get_terminal_size().columns - 1]
        self._send(f"\r{line}\x1b[K")

    def _send(self, text: str) -> None:
        # Whoever cannot be told of it any more must not stop the work.
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()


def share_read(stream: BinaryIO) -> float | None:
    """How much of a file was read; None for what is no file, as a pipe."""
    try:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return None
        return min(stream.tell() / found.st_size, 1.0)
    except (OSError, ValueError):
        return None
