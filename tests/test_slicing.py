"""Long work on the loop, in slices with other work in between."""

import asyncio
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist import slicing

pytestmark = pytest.mark.interpreter


async def sliced(items: list[int]) -> tuple[list[int], int]:
    """Return the items, and the number of pauses."""
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    found: list[int] = []
    async for part in slicing.in_slices(items, pause):
        found += part
    return found, pauses


@given(st.integers(0, 500))
def test_every_item_comes_once_and_in_order(count: int) -> None:
    """However many there are."""
    items = list(range(count))
    assert asyncio.run(sliced(items))[0] == items


def test_there_is_a_pause_after_each_millisecond_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake clock measures it: here 0.3 ms per part, so the pause comes after every fourth."""
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(0, 300_000).__next__)
    found, pauses = asyncio.run(sliced(list(range(16 * 40))))
    assert len(found) == 16 * 40
    assert 8 <= pauses <= 10


def test_little_work_has_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most requests are small and must not queue for nothing."""
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(0, 10**9).__next__)
    assert asyncio.run(sliced(list(range(16)))) == (list(range(16)), 0)


def test_other_tasks_run_in_between() -> None:
    """They run at each pause."""

    async def both() -> list[str]:
        log: list[str] = []

        async def other() -> None:
            log.append("other")

        waiting = asyncio.ensure_future(other())
        log.append("before")
        await slicing.yield_to_loop()
        log.append("after")
        await waiting
        return log

    assert asyncio.run(both()) == ["before", "other", "after"]


def test_one_long_task_resumes_per_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short request waits for one slice, not for one of each."""
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(0, 2 * slicing.SLICE_NS).__next__)

    async def watched() -> list[int]:
        slices = 0

        async def work() -> None:
            nonlocal slices
            async for _ in slicing.in_slices(range(320)):
                slices += 1

        at_work = [asyncio.ensure_future(work()) for _ in range(5)]
        seen: list[int] = []
        while not all(task.done() for task in at_work):
            await asyncio.sleep(0)
            seen.append(slices)
        return seen

    seen = asyncio.run(watched())
    assert seen[-1] == 5 * 20
    begun, rest = seen[0], seen[1:]
    assert begun == 5
    assert max(later - earlier for earlier, later in itertools.pairwise(rest)) == 1


def test_a_cancelled_waiter_does_not_block_others() -> None:
    """A request that ends before its turn."""

    async def three() -> list[int]:
        went_on: list[int] = []

        async def wait(number: int) -> None:
            await slicing.yield_to_loop()
            went_on.append(number)

        waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        await asyncio.wait_for(waiting[2], 60)
        return went_on

    assert asyncio.run(three()) == [2]


def test_a_time_limit_is_over_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [5]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    limit = slicing.TimeLimit(10)
    now_ns[0] = 15
    assert not limit.is_over
    now_ns[0] = 16
    assert limit.is_over
