"""Small units and heavy ones wait for the same line, and neither for all of the other kind.

So partners are answered while others load millions. Source: docs/decisions/0003-units-of-work.md.
"""

import asyncio
import sqlite3

import asyncpg
import pytest

from stoplist.db import Database, Transaction, feed_queues, sqlite
from stoplist.errors import StoreUnavailable
from tests.builders import on_each_database, opened, value
from tests.db.waiting import ADD, HEAVY, ONE, QUEUE_KEY, numbers, prepared, queued

DRIVERS = {"sqlite": sqlite, "postgresql": feed_queues}

pytestmark = pytest.mark.usefixtures("patient")


@on_each_database
async def test_a_small_unit_goes_ahead_of_the_heavy_ones_that_wait(database: Database) -> None:
    """It waits for the one in progress, whatever has been asked for before it."""
    units = await prepared(database)
    first = await units.held(1)
    heavy = [units.heavy(number) for number in (2, 3, 4)]
    await queued()
    small = units.small(10)
    await queued()
    units.let_go(1)
    await asyncio.gather(first, small, *heavy)
    assert units.in_order == [1, 10, 2, 3, 4]
    assert await numbers(database) == [1, 2, 3, 4, 10]


@on_each_database
async def test_a_token_is_stored_before_the_heavy_units_that_wait(database: Database) -> None:
    """What belongs to no line, a whole unit or one statement, waits for the one in progress at most."""
    units = await prepared(database)
    first = await units.held(1)
    second = asyncio.create_task(units.held(2))
    await queued()
    tokens = [
        asyncio.create_task(database.write(lambda transaction: transaction.run(ADD, number=10))),
        asyncio.create_task(database.write_one(ADD, number=11)),
    ]
    await queued()
    units.let_go(1)
    await asyncio.gather(first, *tokens)
    writing = await second
    assert not writing.done()
    assert await numbers(database) == [1, 10, 11]
    units.let_go(2)
    await writing


@on_each_database
async def test_the_small_ones_and_one_heavy_take_turns(database: Database) -> None:
    """All that came while a heavy unit was in progress go next; then one heavy unit, however many small ones come."""
    units = await prepared(database)
    waiting = [await units.held(1), units.heavy(2), units.small(10), units.small(11)]
    await queued()
    held = asyncio.create_task(units.held(3))
    await queued()
    units.let_go(1)
    waiting.append(await held)
    waiting += [units.heavy(4), units.small(12)]
    await queued()
    units.let_go(3)
    await asyncio.gather(*waiting)
    assert units.in_order == [1, 10, 11, 2, 3, 12, 4]


@on_each_database
async def test_small_units_without_end_do_not_hold_up_a_heavy_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group has an end: after it one heavy unit has its turn."""
    monkeypatch.setattr(DRIVERS[database.kind], "MAX_GROUP_UNITS", 3)
    units = await prepared(database)
    waiting = [await units.held(1), units.heavy(2), units.heavy(3), *(units.small(number) for number in range(10, 17))]
    await queued()
    units.let_go(1)
    await asyncio.gather(*waiting)
    assert units.in_order == [1, 10, 11, 12, 2, 13, 14, 15, 3, 16]


@on_each_database
async def test_nobody_who_reads_waits_for_a_heavy_unit(database: Database) -> None:
    """Every kind of read is answered while it is in progress, with what was there before."""
    units = await prepared(database)
    await units.small(5)
    writing = await units.held(1)
    async with asyncio.timeout(60):
        assert await value(database, "SELECT COUNT(*) AS count FROM things") == 1
        assert (await database.one_large(ONE))["count"] == 1  # type: ignore[index]
        assert await numbers(database) == [5]
    assert not writing.done()
    units.let_go(1)
    await writing
    assert await numbers(database) == [1, 5]


@pytest.mark.parametrize("rows", [1, HEAVY])
def test_an_asker_that_hangs_up_does_not_take_its_unit_out_of_the_line(database_url: str, rows: int) -> None:
    """In progress or still waiting, the unit is finished; and nobody behind it is harmed."""

    async def body() -> list[int]:
        async with opened(database_url) as database:
            units = await prepared(database)
            running = await units.held(1)
            ask = units.small if rows == 1 else units.heavy
            waiting, last = ask(2), ask(3)
            await queued()
            for quitter in (running, waiting):
                quitter.cancel()
            await asyncio.wait({running, waiting})
            assert (running.cancelled(), waiting.cancelled()) == (True, True)
            units.let_go(1)
            await last
            assert database.counts.waiting == 0
            return await numbers(database)

    assert asyncio.run(body()) == [1, 2, 3]


@on_each_database
async def test_a_heavy_unit_that_fails_undoes_itself_and_nothing_else(database: Database) -> None:
    """Its own exception reaches its asker; those before and after it are stored."""
    units = await prepared(database)
    first = await units.held(1)

    async def fails(transaction: Transaction) -> None:
        await transaction.run(ADD, number=2)
        raise LookupError("as it is")

    async def twice(transaction: Transaction) -> None:
        for _ in range(2):
            await transaction.run(ADD, number=3)

    failing = [asyncio.create_task(database.write(work, queue_key=QUEUE_KEY, rows=HEAVY)) for work in (fails, twice)]
    await queued()
    waiting = [units.heavy(4), units.small(10)]
    await queued()
    units.let_go(1)
    await asyncio.gather(first, *waiting)
    with pytest.raises(LookupError, match="as it is"):
        await failing[0]
    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await failing[1]
    assert await numbers(database) == [1, 4, 10]


@on_each_database
async def test_a_heavy_unit_s_statements_see_one_another(database: Database) -> None:
    """`one`, `all` and `run` in one transaction, with pauses in between; its answer comes back."""
    await prepared(database)

    async def unit(transaction: Transaction) -> tuple[int, int, int]:
        touched = await transaction.run(ADD, number=1)
        await transaction.pause()
        row = await transaction.one(ONE)
        assert row is not None
        return touched, row["count"], len(await transaction.all(ONE))

    assert await database.write(unit, queue_key=QUEUE_KEY, rows=HEAVY) == (1, 1, 1)


@pytest.mark.parametrize("rows", [1, HEAVY])
def test_what_is_asked_beyond_the_queue_is_refused_at_once(
    database_url: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue without end would answer nobody in time."""

    async def body() -> None:
        async with opened(database_url) as database:
            monkeypatch.setattr(DRIVERS[database.kind], "MAX_WAITING_UNITS", 3)
            units = await prepared(database)
            ask = units.small if rows == 1 else units.heavy
            first = await units.held(1)
            waiting = [ask(number) for number in range(2, 7)]
            await queued()
            assert [one.done() for one in waiting] == [False] * 3 + [True] * 2
            units.let_go(1)
            answers = await asyncio.gather(first, *waiting, return_exceptions=True)
            assert [type(answer) for answer in answers] == [type(None)] * 4 + [StoreUnavailable] * 2
            assert await numbers(database) == [1, 2, 3, 4]

    asyncio.run(body())


def test_closing_finishes_what_waits(database_url: str) -> None:
    """Whatever waits in a line when the end comes, small or heavy, is stored before the database is let go."""

    async def body() -> list[int]:
        async with opened(database_url) as database:
            units = await prepared(database)
            first = await units.held(1)
            waiting = [
                units.heavy(2),
                units.small(10),
                units.heavy(3, queue_key=QUEUE_KEY + 1),
                units.small(11, queue_key=QUEUE_KEY + 1),
            ]
            await queued()
            closing = asyncio.create_task(database.close())
            await queued()
            assert not closing.done()
            units.let_go(1)
            await closing
            await asyncio.gather(first, *waiting)
            with pytest.raises(StoreUnavailable):
                await units.heavy(20)
        async with opened(database_url) as database:
            return await numbers(database)

    assert asyncio.run(body()) == [1, 2, 3, 10, 11]
