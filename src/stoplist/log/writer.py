"""The buffer between the log and its stream: few writes, whole lines, and no failure of the code that logs.

Why not a handler of `logging` or an `io.BufferedWriter`: docs/decisions/0016.
"""

import asyncio
import select
import threading
from typing import Any, BinaryIO

_FLUSH_AFTER_S = 0.05
_FLUSH_AT_CHARS = 64 * 1024
_MAX_BACKLOG_BYTES = 1024 * 1024


class Writer:
    """Buffers lines and writes them to a stream in order; each line is written whole if the stream accepts it."""

    def __init__(self, stream: BinaryIO) -> None:
        # Bypasses the stream's own buffer, which would raise again at exit if the reader has closed the pipe.
        self._stream = getattr(stream, "raw", stream)
        self._lines: list[str] = []
        self._chars = 0
        self._backlog = b""
        self._is_within_line = False
        self._flush_loop: asyncio.AbstractEventLoop | None = None
        # Threads log too, and a signal handler may log while its own thread is in here.
        self._flushing = threading.RLock()

    def add(self, line: str) -> None:
        """Buffer the line for a moment if an event loop runs, else write it now."""
        # No lock (0.2 us): an append is atomic, and a count that another thread resets in between does no harm.
        self._lines.append(line)
        self._chars += len(line)
        if self._chars >= _FLUSH_AT_CHARS or not self._is_flush_scheduled():
            self.flush()

    def write(self, line: str) -> None:
        """Write the line now, after all buffered lines."""
        self._lines.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what the stream accepts now, and keep up to 1 MiB of the rest for the next time."""
        with self._flushing:
            # Only the copied lines are removed: the event loop may append at any moment.
            lines = self._lines[:]
            del self._lines[: len(lines)]
            self._chars = 0
            content, self._backlog = self._backlog, b""
            if len(content) < _MAX_BACKLOG_BYTES:
                content += "".join(lines).encode()
            written, is_failed = _write_available(self._stream, content)
            if written:
                self._is_within_line = content[written - 1] != ord("\n")
            # After a failure the lines are lost; a newline keeps the next line apart from a partly written one.
            self._backlog = content[written:] if not is_failed else b"\n" if self._is_within_line else b""

    def _is_flush_scheduled(self) -> bool:
        """Return whether an event loop will flush soon. Without an event loop nothing would."""
        # A closed loop never will. Asking which loop runs is more expensive, so it comes second.
        if self._flush_loop is not None and not self._flush_loop.is_closed():
            return True
        try:
            self._flush_loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        self._flush_loop.call_later(_FLUSH_AFTER_S, self._flush_on_timer)
        return True

    def _flush_on_timer(self) -> None:
        self._flush_loop = None
        self.flush()


def _write_available(stream: Any, content: bytes) -> tuple[int, bool]:
    """Return how many bytes the stream accepted, and whether it failed. Fewer bytes without a failure: a full pipe."""
    rest = memoryview(content)
    try:
        while rest and (count := stream.write(_whole_lines(rest))):
            rest = rest[count:]
    except BlockingIOError as full:
        rest = rest[getattr(full, "characters_written", 0) :]
    except (OSError, ValueError):
        # Nobody reads any more, the disk is full, or the stream is closed: the server continues without a log.
        return len(content) - len(rest), True
    return len(content) - len(rest), False


def _whole_lines(rest: memoryview) -> memoryview:
    """Return as many lines as a pipe accepts atomically: other processes of the same server write into it too.

    A longer line is written alone; it is torn only if the pipe fills up in the middle of it.
    """
    if len(rest) <= select.PIPE_BUF:
        return rest
    return rest[: bytes(rest[: select.PIPE_BUF]).rfind(b"\n") + 1 or bytes(rest).find(b"\n") + 1 or len(rest)]
