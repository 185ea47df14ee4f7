"""Long work on the loop, in slices between which others run."""

import asyncio
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist import pace


async def sliced(items: list[int]) -> tuple[list[int], int]:
    """What comes out, and how often others were let run."""
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    found: list[int] = []
    async for part in pace.in_slices(items, pause):
        found += part
    return found, pauses


@given(st.integers(0, 500))
def test_every_item_comes_once_and_in_order(count: int) -> None:
    """However many there are."""
    items = list(range(count))
    assert asyncio.run(sliced(items))[0] == items


def test_there_is_a_pause_after_each_millisecond_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is told what the work takes: here 0.3 ms a part, so after every fourth."""
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(0, 300_000).__next__)
    found, pauses = asyncio.run(sliced(list(range(16 * 40))))
    assert len(found) == 16 * 40
    assert 8 <= pauses <= 10


def test_little_work_has_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most requests are small, and must not queue behind one another for nothing."""
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(0, 10**9).__next__)
    assert asyncio.run(sliced(list(range(16)))) == (list(range(16)), 0)


def test_others_run_in_between() -> None:
    """Whatever waits for the loop has its turn at each pause."""

    async def both() -> list[str]:
        log: list[str] = []

        async def other() -> None:
            log.append("other")

        waiting = asyncio.ensure_future(other())
        log.append("before")
        await pace.let_others_run()
        log.append("after")
        await waiting
        return log

    assert asyncio.run(both()) == ["before", "other", "after"]
