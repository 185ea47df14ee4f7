"""Whether a server that stops gives notice of it (docs/interface.md sections D1, DRAIN_S, and D10)."""

import asyncio
from itertools import pairwise

import pytest

from stoplist.web import readiness
from stoplist.web.readiness import PROBED_WITHIN_S, Readiness


class Time:
    """What the module takes for the monotonic clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """A clock that the test moves."""
    own = Time()
    monkeypatch.setattr(readiness, "time", own)
    return own


def test_half_of_the_drain_is_notice_where_somebody_asks(time: Time) -> None:
    """Here or in another process, in the last 30 s; whoever does not ask is not waited for."""
    here, there, nowhere = (Readiness(asyncio.Event()) for _ in range(3))
    here.asked()
    there.note_probe_elsewhere()
    time.now_s += PROBED_WITHIN_S - 1
    assert [it.notice_s(10) for it in (here, there, nowhere)] == [5, 5, 0]
    time.now_s += 1
    assert [it.notice_s(10) for it in (here, there, nowhere)] == [0, 0, 0]


def test_a_machine_that_has_just_been_started_gives_no_notice_unasked(time: Time) -> None:
    """Its monotonic clock begins at 0."""
    time.now_s = 0.0
    assert Readiness(asyncio.Event()).notice_s(10) == 0


def test_the_others_are_told_now_and_then(time: Time) -> None:
    """Often enough that none of them forgets; not at each of many questions, nor of one that was asked elsewhere."""
    told: list[float] = []
    asked = Readiness(asyncio.Event(), tell=lambda: told.append(time.now_s))
    asked.note_probe_elsewhere()
    assert told == []
    began_s = time.now_s
    for _ in range(200):
        asked.asked()
        time.now_s += 0.5
    gaps = {after - before for before, after in pairwise(told)}
    assert told[0] == began_s
    assert max(gaps) < PROBED_WITHIN_S / 2
    assert min(gaps) >= 5


def test_it_is_leaving_once_it_was_told_to_stop() -> None:
    """Not before."""
    stop = asyncio.Event()
    asked = Readiness(stop)
    assert not asked.is_leaving
    stop.set()
    assert asked.is_leaving
