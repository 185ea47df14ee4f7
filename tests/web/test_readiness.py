"""The notice that a stopping server gives (docs/interface.md sections D1, DRAIN_S, and D10)."""

import asyncio
from itertools import pairwise

import pytest

from stoplist.web import readiness
from stoplist.web.readiness import PROBED_WITHIN_S, Readiness


class Time:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Replace the clock of the module."""
    fake = Time()
    monkeypatch.setattr(readiness, "time", fake)
    return fake


def test_a_recent_probe_makes_half_of_the_drain_notice(time: Time) -> None:
    """The probe reached this process or another one in the last 30 s; without a probe there is no notice."""
    here, there, nowhere = (Readiness(asyncio.Event()) for _ in range(3))
    here.note_probe()
    there.note_probe_elsewhere()
    time.now_s += PROBED_WITHIN_S - 1
    assert [process.notice_s(10) for process in (here, there, nowhere)] == [5, 5, 0]
    time.now_s += 1
    assert [process.notice_s(10) for process in (here, there, nowhere)] == [0, 0, 0]


def test_a_new_machine_without_probes_gives_no_notice(time: Time) -> None:
    """Its monotonic clock begins at 0."""
    time.now_s = 0.0
    assert Readiness(asyncio.Event()).notice_s(10) == 0


def test_probes_are_announced_to_the_others_now_and_then(time: Time) -> None:
    """Often enough that none of them forgets; not at every probe, and not for a probe of another process."""
    announced: list[float] = []
    probed = Readiness(asyncio.Event(), on_probe=lambda: announced.append(time.now_s))
    probed.note_probe_elsewhere()
    assert announced == []
    began_s = time.now_s
    for _ in range(200):
        probed.note_probe()
        time.now_s += 0.5
    gaps = {after - before for before, after in pairwise(announced)}
    assert announced[0] == began_s
    assert max(gaps) < PROBED_WITHIN_S / 2
    assert min(gaps) >= 5


def test_a_process_is_leaving_once_told_to_stop() -> None:
    stop = asyncio.Event()
    process = Readiness(stop)
    assert not process.is_leaving
    stop.set()
    assert process.is_leaving
