"""Who waits for PostgreSQL's connections and in a line: in turn, not too many, and not too long."""

import asyncio
import gc
from collections import Counter

import pytest

from stoplist.db import Transaction, feed_queues, pools
from stoplist.errors import StoreUnavailable
from tests.builders import execute, opened
from tests.db.failing_databases import PATIENCE_S, PID, POOL, adds
from tests.db.waiting import ADD, ALL, HEAVY, MAKE, QUEUE_KEY, numbers, queued

pytestmark = pytest.mark.usefixtures("patient")


def test_whoever_waits_for_a_connection_is_served_in_turn(postgresql_url: str) -> None:
    """Nobody who comes later goes ahead, however often others come back."""

    async def body() -> None:
        async with opened(postgresql_url, pool_size=2) as database:
            served: Counter[int] = Counter()

            async def comes_back(who: int) -> None:
                for _ in range(20):
                    await database.one(PID)
                    served[who] += 1
                    assert max(served.values()) - min(served[other] for other in range(20)) <= 2

            await asyncio.gather(*(comes_back(who) for who in range(20)))

    asyncio.run(body())


@pytest.mark.parametrize("rows", [1, HEAVY])
def test_a_unit_waits_in_its_line_for_so_long_and_no_longer(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rows: int
) -> None:
    """Behind one that takes its time; that one is stored, and what was given up is not, also later."""
    monkeypatch.setattr(feed_queues, "SMALL_WAIT_S", 0.1)
    monkeypatch.setattr(feed_queues, "HEAVY_WAIT_S", 0.1)
    gc.collect()  # what others left behind is told of here, and not later
    caplog.clear()

    async def body() -> None:
        async with opened(postgresql_url) as database:
            await execute(database, MAKE)
            go_on = asyncio.Event()

            async def slowly(transaction: Transaction) -> None:
                await transaction.run(ADD, number=1)
                await go_on.wait()

            slow = asyncio.create_task(database.write(slowly, queue_key=QUEUE_KEY, rows=HEAVY))
            await queued()
            with pytest.raises(StoreUnavailable, match="Other submissions to this feed"):
                await database.write(adds(2), queue_key=QUEUE_KEY, rows=rows)
            go_on.set()
            await slow
            await database.write(adds(3), queue_key=QUEUE_KEY, rows=rows)
            assert await numbers(database) == [1, 3]
            assert caplog.records == []

    asyncio.run(body())


def test_a_heavy_read_waits_for_room_so_long_and_no_longer(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while too many wait for it, it does not wait at all."""

    async def body() -> None:
        async with opened(postgresql_url, pool_size=POOL) as database:
            await execute(database, MAKE)
            go_on = asyncio.Event()

            async def slowly(transaction: Transaction) -> None:
                await transaction.one(PID)
                await go_on.wait()

            slow = asyncio.create_task(database.write(slowly, queue_key=QUEUE_KEY, rows=HEAVY))
            await queued()
            with monkeypatch.context() as patch:
                patch.setattr(pools, "ACQUIRE_TIMEOUT_S", 0.1)
                with pytest.raises(StoreUnavailable):
                    await database.one_large(ALL)
                patch.setattr(pools, "MAX_WAITING_REQUESTS", 0)
                patch.setattr(pools, "ACQUIRE_TIMEOUT_S", PATIENCE_S)
                with pytest.raises(StoreUnavailable, match="Too many requests are waiting"):
                    await database.one_large(ALL)
            go_on.set()
            await slow
            assert await database.one_large(ALL) is None

    asyncio.run(body())
