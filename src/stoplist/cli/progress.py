"""Shows the progress of long work on stderr: a bar on a terminal, otherwise a line every ten seconds."""

import contextlib
import shutil
from typing import NamedTuple, TextIO

from stoplist.clock import Clock

_BAR_NS = 100_000_000
_LINE_NS = 10_000_000_000


class WorkProgress(NamedTuple):
    """The progress of some work. `label` says what is being done.

    `all_rows` may be an estimate; None: nobody knows, so that there is neither a bar nor a time left.
    """

    label: str
    rows: int
    all_rows: int | None
    detail: str = ""
    unit: str = "rows"


class ProgressDisplay:
    """Shows progress on a stream: a bar on a terminal, otherwise a line every ten seconds."""

    def __init__(self, clock: Clock, stream: TextIO | None) -> None:
        self._clock, self._stream = clock, stream
        self._is_terminal = stream is not None and stream.isatty()
        self._pause_ns = _BAR_NS if self._is_terminal else _LINE_NS
        self._began: tuple[WorkProgress, int] | None = None
        self._last_shown: tuple[WorkProgress, int] | None = None

    def report(self, step: WorkProgress) -> None:
        """Show this, unless something was shown just now. The first and last of each label are always shown."""
        now_ns = self._clock.monotonic_ns()
        if self._began is None or self._began[0].label != step.label:
            self._began, self._last_shown = (step, now_ns), None
        if self._last_shown is not None:
            is_first_at_end = step.rows == step.all_rows != self._last_shown[0].rows
            if now_ns - self._last_shown[1] < self._pause_ns and not is_first_at_end:
                return
        self._last_shown = step, now_ns
        first, began_ns = self._began
        self._write(progress_line(step, rows_since=step.rows - first.rows, elapsed_ns=now_ns - began_ns))

    def close(self) -> None:
        """End the progress line, so that the next output begins on a new line."""
        if self._is_terminal and self._began:
            self._send("\n")
        self._began = None

    def _write(self, line: str) -> None:
        # A line that wraps could not be overwritten.
        width = shutil.get_terminal_size().columns - 1
        self._send(f"\r{line[:width]}\x1b[K" if self._is_terminal else f"{line}\n")

    def _send(self, text: str) -> None:
        # A closed stderr must not stop the work.
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()


def progress_line(step: WorkProgress, *, rows_since: int, elapsed_ns: int) -> str:
    """Return a line such as `Copying 52% [#####     ] 520,000 of 1,000,000 rows, 98,000 rows/s, 0:05 left (audit)`."""
    if step.all_rows is None:
        text = f"{step.label} {step.rows:,} {step.unit}"
    else:
        share = step.rows / step.all_rows if step.all_rows else 1.0
        bar = ("#" * round(10 * share)).ljust(10)
        text = f"{step.label} {share:.0%} [{bar}] {step.rows:,} of {step.all_rows:,} {step.unit}"
    if rows_since > 0 and elapsed_ns > 0:
        rate = rows_since / elapsed_ns * 1_000_000_000
        text += f", {rate:,.0f} {step.unit}/s"
        if step.all_rows is not None:
            text += f", {minutes(round((step.all_rows - step.rows) / rate))} left"
    return f"{text} ({step.detail})" if step.detail else text


def minutes(seconds: int) -> str:
    """Return a duration such as `1:05`."""
    whole_minutes, rest_s = divmod(seconds, 60)
    hours, rest_minutes = divmod(whole_minutes, 60)
    return f"{hours}:{rest_minutes:02}:{rest_s:02}" if hours else f"{rest_minutes}:{rest_s:02}"
