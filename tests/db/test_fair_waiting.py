"""Small and heavy units share a queue, and neither waits for all of the other kind.

So partners are answered while others load millions. Source: docs/decisions/0003-units-of-work.md.
"""

import asyncio
import sqlite3

import asyncpg
import pytest

from stoplist.db import Database, Transaction, feed_queues, sqlite
from stoplist.errors import StoreUnavailable
from tests.builders import on_each_database, opened, value
from tests.db.unit_fixture import ADD, HEAVY, ONE, QUEUE_KEY, create_units, let_units_queue, numbers

DRIVERS = {"sqlite": sqlite, "postgresql": feed_queues}


@on_each_database
async def test_a_small_unit_goes_ahead_of_waiting_heavy_ones(database: Database) -> None:
    """It waits only for the one in progress."""
    units = await create_units(database)
    first = await units.start_held(1)
    heavy = [units.heavy(number) for number in (2, 3, 4)]
    await let_units_queue()
    small = units.small(10)
    await let_units_queue()
    units.release(1)
    await asyncio.gather(first, small, *heavy)
    assert units.start_order == [1, 10, 2, 3, 4]
    assert await numbers(database) == [1, 2, 3, 4, 10]


@on_each_database
async def test_a_unit_without_queue_goes_ahead_of_waiting_heavy_ones(database: Database) -> None:
    """A unit or statement without a queue key, as for tokens, waits only for the heavy unit in progress."""
    units = await create_units(database)
    first = await units.start_held(1)
    second = asyncio.create_task(units.start_held(2))
    await let_units_queue()
    tokens = [
        asyncio.create_task(database.write(lambda transaction: transaction.run(ADD, number=10))),
        asyncio.create_task(database.write_one(ADD, number=11)),
    ]
    await let_units_queue()
    units.release(1)
    await asyncio.gather(first, *tokens)
    writing = await second
    assert not writing.done()
    assert await numbers(database) == [1, 10, 11]
    units.release(2)
    await writing


@on_each_database
async def test_small_units_and_one_heavy_unit_take_turns(database: Database) -> None:
    """Small units that arrived during a heavy unit go next; then one heavy unit, however many small ones arrive."""
    units = await create_units(database)
    waiting = [await units.start_held(1), units.heavy(2), units.small(10), units.small(11)]
    await let_units_queue()
    held = asyncio.create_task(units.start_held(3))
    await let_units_queue()
    units.release(1)
    waiting.append(await held)
    waiting += [units.heavy(4), units.small(12)]
    await let_units_queue()
    units.release(3)
    await asyncio.gather(*waiting)
    assert units.start_order == [1, 10, 11, 2, 3, 12, 4]


@on_each_database
async def test_endless_small_units_do_not_starve_a_heavy_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is limited; after it one heavy unit runs."""
    monkeypatch.setattr(DRIVERS[database.kind], "MAX_GROUP_UNITS", 3)
    units = await create_units(database)
    waiting = [
        await units.start_held(1),
        units.heavy(2),
        units.heavy(3),
        *(units.small(number) for number in range(10, 17)),
    ]
    await let_units_queue()
    units.release(1)
    await asyncio.gather(*waiting)
    assert units.start_order == [1, 10, 11, 12, 2, 13, 14, 15, 3, 16]


@on_each_database
async def test_reads_do_not_wait_for_a_heavy_unit(database: Database) -> None:
    """Every kind of read is answered while it is in progress, from the state before it."""
    units = await create_units(database)
    await units.small(5)
    writing = await units.start_held(1)
    async with asyncio.timeout(60):
        assert await value(database, "SELECT COUNT(*) AS count FROM things") == 1
        assert (await database.one_large(ONE))["count"] == 1  # type: ignore[index]
        assert await numbers(database) == [5]
    assert not writing.done()
    units.release(1)
    await writing
    assert await numbers(database) == [1, 5]


@pytest.mark.parametrize("rows", [1, HEAVY])
def test_a_cancelled_caller_does_not_remove_its_unit(database_url: str, rows: int) -> None:
    """A unit in progress or waiting is finished, and the units behind it are unaffected."""

    async def body() -> list[int]:
        async with opened(database_url) as database:
            units = await create_units(database)
            running = await units.start_held(1)
            write = units.small if rows == 1 else units.heavy
            waiting, last = write(2), write(3)
            await let_units_queue()
            for quitter in (running, waiting):
                quitter.cancel()
            await asyncio.wait({running, waiting})
            assert (running.cancelled(), waiting.cancelled()) == (True, True)
            units.release(1)
            await last
            assert database.counts.waiting == 0
            return await numbers(database)

    assert asyncio.run(body()) == [1, 2, 3]


@on_each_database
async def test_a_failing_heavy_unit_undoes_only_itself(database: Database) -> None:
    """Its exception reaches its caller; the units before and after it are stored."""
    units = await create_units(database)
    first = await units.start_held(1)

    async def fails(transaction: Transaction) -> None:
        await transaction.run(ADD, number=2)
        raise LookupError("as it is")

    async def twice(transaction: Transaction) -> None:
        for _ in range(2):
            await transaction.run(ADD, number=3)

    failing = [asyncio.create_task(database.write(work, queue_key=QUEUE_KEY, rows=HEAVY)) for work in (fails, twice)]
    await let_units_queue()
    waiting = [units.heavy(4), units.small(10)]
    await let_units_queue()
    units.release(1)
    await asyncio.gather(first, *waiting)
    with pytest.raises(LookupError, match="as it is"):
        await failing[0]
    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await failing[1]
    assert await numbers(database) == [1, 4, 10]


@on_each_database
async def test_statements_of_a_heavy_unit_see_one_another(database: Database) -> None:
    """`one`, `all` and `run` in one transaction, with pauses in between; the unit's result is returned."""
    await create_units(database)

    async def unit(transaction: Transaction) -> tuple[int, int, int]:
        touched = await transaction.run(ADD, number=1)
        await transaction.pause()
        row = await transaction.one(ONE)
        assert row is not None
        return touched, row["count"], len(await transaction.all(ONE))

    assert await database.write(unit, queue_key=QUEUE_KEY, rows=HEAVY) == (1, 1, 1)


@pytest.mark.parametrize("rows", [1, HEAVY])
def test_a_full_queue_refuses_at_once(database_url: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unbounded queue would answer nobody in time."""

    async def body() -> None:
        async with opened(database_url) as database:
            monkeypatch.setattr(DRIVERS[database.kind], "MAX_WAITING_UNITS", 3)
            units = await create_units(database)
            write = units.small if rows == 1 else units.heavy
            first = await units.start_held(1)
            waiting = [write(number) for number in range(2, 7)]
            await let_units_queue()
            assert [one.done() for one in waiting] == [False] * 3 + [True] * 2
            units.release(1)
            answers = await asyncio.gather(first, *waiting, return_exceptions=True)
            assert [type(answer) for answer in answers] == [type(None)] * 4 + [StoreUnavailable] * 2
            assert await numbers(database) == [1, 2, 3, 4]

    asyncio.run(body())


def test_closing_finishes_waiting_units(database_url: str) -> None:
    """Every unit in a queue, small or heavy, is stored before the database is closed."""

    async def body() -> list[int]:
        async with opened(database_url) as database:
            units = await create_units(database)
            first = await units.start_held(1)
            waiting = [
                units.heavy(2),
                units.small(10),
                units.heavy(3, queue_key=QUEUE_KEY + 1),
                units.small(11, queue_key=QUEUE_KEY + 1),
            ]
            await let_units_queue()
            closing = asyncio.create_task(database.close())
            await let_units_queue()
            assert not closing.done()
            units.release(1)
            await closing
            await asyncio.gather(first, *waiting)
            with pytest.raises(StoreUnavailable):
                await units.heavy(20)
        async with opened(database_url) as database:
            return await numbers(database)

    assert asyncio.run(body()) == [1, 2, 3, 10, 11]
