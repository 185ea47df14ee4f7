"""Waiting for PostgreSQL's connections and in a feed queue: in order, bounded in number and in time."""

import asyncio
import gc
from collections import Counter

import pytest

from stoplist.db import Transaction, feed_queues, pools
from stoplist.errors import StoreUnavailable
from tests.builders import execute, opened
from tests.constants import PATIENCE_S
from tests.db.failing_databases import PID, POOL, add_unit
from tests.db.unit_fixture import ADD, ALL, HEAVY, MAKE, QUEUE_KEY, let_units_queue, numbers


def test_connections_are_lent_in_order_of_arrival(postgresql_url: str) -> None:
    """However often others return."""

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
def test_a_unit_waits_in_its_queue_for_a_bounded_time(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rows: int
) -> None:
    """The slow unit ahead is stored; the unit that timed out is not stored, also not later."""
    monkeypatch.setattr(feed_queues, "SMALL_WAIT_S", 0.1)
    monkeypatch.setattr(feed_queues, "HEAVY_WAIT_S", 0.1)
    gc.collect()  # so that garbage of other tests is reported here, not later
    caplog.clear()

    async def body() -> None:
        async with opened(postgresql_url) as database:
            await execute(database, MAKE)
            go_on = asyncio.Event()

            async def slowly(transaction: Transaction) -> None:
                await transaction.run(ADD, number=1)
                await go_on.wait()

            slow = asyncio.create_task(database.write(slowly, queue_key=QUEUE_KEY, rows=HEAVY))
            await let_units_queue()
            with pytest.raises(StoreUnavailable, match="Other submissions to this feed"):
                await database.write(add_unit(2), queue_key=QUEUE_KEY, rows=rows)
            go_on.set()
            await slow
            await database.write(add_unit(3), queue_key=QUEUE_KEY, rows=rows)
            assert await numbers(database) == [1, 3]
            assert caplog.records == []

    asyncio.run(body())


def test_a_heavy_read_waits_for_capacity_for_a_bounded_time(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If too many reads wait already, it does not wait at all."""

    async def body() -> None:
        async with opened(postgresql_url, pool_size=POOL) as database:
            await execute(database, MAKE)
            go_on = asyncio.Event()

            async def slowly(transaction: Transaction) -> None:
                await transaction.one(PID)
                await go_on.wait()

            slow = asyncio.create_task(database.write(slowly, queue_key=QUEUE_KEY, rows=HEAVY))
            await let_units_queue()
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
