"""The processor time that a key may use beyond that of plain items (docs/interface.md section D8)."""

import asyncio

import pytest

from stoplist.errors import RateLimited
from stoplist.slicing import Work, in_timed_slices
from stoplist.web.body import ClientGone
from stoplist.web.processing_time import MAX_EXTRA_S, MeteredWork, ProcessingTime
from stoplist.web.request_context import Message
from tests.constants import SECOND_NS
from tests.deployment import in_own_loop
from tests.fakes import FakeClock

KEY, OTHER = "svc_ci_one", "svc_ci_other"


async def connected() -> Message:
    """Receive nothing: the client waits for its answer."""
    await asyncio.Event().wait()
    raise AssertionError


def test_a_key_beyond_its_time_waits_until_enough_is_a_minute_old() -> None:
    clock = FakeClock()
    times = ProcessingTime(clock)
    times.charge(KEY, SECOND_NS)
    clock.advance(10)
    times.charge(KEY, MAX_EXTRA_S * SECOND_NS)
    with pytest.raises(RateLimited, match="internationalized domains") as refused:
        times.check(KEY)
    assert refused.value.retry_after_s == 50
    times.check(OTHER)
    clock.advance(49)
    with pytest.raises(RateLimited):
        times.check(KEY)
    clock.advance(1)
    times.check(KEY)


def test_plain_items_are_not_charged() -> None:
    """However many: they are bounded by the number of requests."""
    times = ProcessingTime(FakeClock())
    for _ in range(1000):
        work = MeteredWork(connected, times, KEY)
        work.spent_ns, work.items = SECOND_NS // 10, 10_000
        work.end()
    times.check(KEY)


@in_own_loop
async def test_work_under_way_ends_once_its_key_has_used_its_time() -> None:
    """All work of the key: several batches that began while there was time left."""
    times = ProcessingTime(FakeClock())
    one, other, of_other_key = (MeteredWork(connected, times, key) for key in (KEY, KEY, OTHER))
    for _ in range(MAX_EXTRA_S // 2):
        for work in (one, other):
            work.spent_ns += SECOND_NS
            await work.pause()
    for work in (one, other):
        work.spent_ns += SECOND_NS
        with pytest.raises(RateLimited):
            await work.pause()
    await of_other_key.pause()
    await one.pause()  # storing what was read already takes nothing more
    for work in (one, other, of_other_key):
        work.end()


def test_keys_that_went_away_are_forgotten() -> None:
    clock = FakeClock()
    times = ProcessingTime(clock)
    for number in range(100):
        times.charge(f"key {number}", SECOND_NS)
    clock.advance(60)
    for _ in range(100):
        times.charge(KEY, SECOND_NS // 100)
    assert len(times._spent) == len(times._total_ns) == 1
    assert len(times._spent[KEY]) == 1, "one entry for each second"


def test_timed_slices_count_the_time_of_their_caller() -> None:
    async def main() -> Work:
        work = Work()
        async for part in in_timed_slices(range(100), work):
            for _ in part:
                sum(range(2_000))
        return work

    work = asyncio.run(main())
    assert work.items == 100
    assert work.spent_ns > 0


@in_own_loop
async def test_work_ends_once_the_client_has_left() -> None:
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    work = MeteredWork(receive, ProcessingTime(FakeClock()), KEY)
    await work.pause()
    left.set()
    await asyncio.sleep(0)  # the disconnection is noticed
    with pytest.raises(ClientGone):
        await work.pause()
    work.end()
