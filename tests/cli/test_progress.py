"""The progress of long commands: a bar on a terminal, otherwise a line every ten seconds."""

import io

import pytest

from stoplist.cli.progress import ProgressDisplay, WorkProgress, progress_line
from tests.fakes import FakeClock

Steps = list[tuple[float, WorkProgress]]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def render(stream: io.StringIO | None, steps: Steps) -> str:
    """Return the output for steps that each come so many seconds after the previous one."""
    clock = FakeClock()
    display = ProgressDisplay(clock, stream)
    for seconds, step in steps:
        clock.advance(seconds)
        display.report(step)
    display.close()
    return stream.getvalue() if stream is not None else ""


STEPS: Steps = [(1, WorkProgress("Copying", rows, 10_000_000, "audit")) for rows in range(0, 2_000_000, 100_000)]
END: Steps = [
    (1, WorkProgress("Copying", 10_000_000, 10_000_000, "unsubscribes")),
    (0, WorkProgress("Copying", 10_000_000, 10_000_000, "unsubscribes")),
    (0, WorkProgress("Verifying", 0, 10_000_000, "audit")),
    (0, WorkProgress("Verifying", 10_000_000, 10_000_000, "audit")),
]


def test_a_progress_line_has_rows_rate_and_time_left() -> None:
    step = WorkProgress("Copying", 5_200_000, 10_000_000, "unsubscribes")
    assert progress_line(step, rows_since=2_000_000, elapsed_ns=20_000_000_000) == (
        "Copying 52% [#####     ] 5,200,000 of 10,000,000 rows, 100,000 rows/s, 0:48 left (unsubscribes)"
    )
    assert progress_line(step, rows_since=100, elapsed_ns=1_000_000_000).endswith(
        "100 rows/s, 13:20:00 left (unsubscribes)"
    )
    assert progress_line(step, rows_since=0, elapsed_ns=0).endswith("10,000,000 rows (unsubscribes)")


def test_without_a_known_end_there_is_neither_bar_nor_time_left() -> None:
    step = WorkProgress("Reading", 120, None, unit="MB")
    assert progress_line(step, rows_since=40, elapsed_ns=1_000_000_000) == "Reading 120 MB, 40 MB/s"
    steps: Steps = [(1, WorkProgress("Importing", rows, None)) for rows in range(0, 25_000, 1_000)]
    lines = render(io.StringIO(), steps).splitlines()
    assert lines == [
        f"Importing {rows}, 1,000 rows/s" if rows else "Importing 0 rows" for rows in ("", "10,000 rows", "20,000 rows")
    ]


def test_without_a_terminal_a_line_is_printed_every_ten_seconds() -> None:
    """The first and the last line of each kind are always printed."""
    lines = render(io.StringIO(), STEPS + END).splitlines()
    assert [line.split(" rows")[0].split("] ", 1)[1] for line in lines] == [
        "0 of 10,000,000",
        "1,000,000 of 10,000,000",
        "10,000,000 of 10,000,000",
        "0 of 10,000,000",
        "10,000,000 of 10,000,000",
    ]
    assert "\r" not in "".join(lines)


def test_on_a_terminal_one_line_is_overwritten() -> None:
    """This happens at most ten times a second; the next output begins on a new line."""
    text = render(Terminal(), [(0.01, step) for _, step in STEPS])
    assert text.count("\r") == 2
    assert text.endswith("\n")
    assert text.count("\n") == 1
    assert render(Terminal(), []) == ""


def test_on_a_narrow_terminal_the_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapped line could not be overwritten."""
    monkeypatch.setenv("COLUMNS", "40")
    for line in render(Terminal(), STEPS).split("\r")[1:]:
        assert len(line.split("\x1b")[0]) < 40


def test_a_closed_stderr_does_not_stop_the_copy() -> None:
    """It may be closed from the start, or its reader may have gone."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    assert render(None, STEPS) == ""
    assert render(Gone(), STEPS) == ""
