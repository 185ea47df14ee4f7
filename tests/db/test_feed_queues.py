"""Feed queues on PostgreSQL: the units of one feed wait for one another in the process, not in the database."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from stoplist.db import Database, Transaction, postgresql, postgresql_transactions
from stoplist.errors import StoreUnavailable
from tests.builders import execute, on_postgresql, opened, pooled, sql
from tests.db.failing_databases import wait_until_answered
from tests.db.unit_fixture import (
    ADD,
    ALL,
    CHANGE,
    HEAVY,
    MAKE,
    QUEUE_KEY,
    OtherProcess,
    another_process,
    let_units_queue,
    numbers,
)

TRANSACTION = sql("SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) AS id, pg_backend_pid() AS pid")
FAIL = "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '{}'; END $$"
MANY = 51


Work = Callable[[Transaction], Awaitable[Any]]


@pytest.fixture(params=["direct", "pooled"])
def postgresql_url(postgresql_url: str, request: pytest.FixtureRequest) -> str:
    """Return an empty database; every test runs without and through a pooler."""
    if request.param == "direct":
        return postgresql_url
    return pooled(request.getfixturevalue("pgbouncer"), postgresql_url)


def start_write(database: Database, unit: Work, *, queue_key: int = QUEUE_KEY, rows: int = 1) -> "asyncio.Task[Any]":
    """Start a write in a task."""

    async def ask() -> Any:
        return await database.write(unit, queue_key=queue_key, rows=rows)

    return asyncio.create_task(ask())


def add_unit(number: int) -> Work:
    """Return a unit that adds a number and returns the id of its transaction."""

    async def work(transaction: Transaction) -> int:
        await transaction.run(ADD, number=number)
        row = await transaction.one(TRANSACTION)
        assert row is not None
        return int(row["id"])

    return work


def update_unit(number: int) -> Work:
    """Return a unit that updates a row standing for a feed, and so waits for its lock."""

    async def work(transaction: Transaction) -> int:
        return await transaction.run(CHANGE, number=number, content="ours")

    return work


async def create_feeds(database: Database, *rows: int) -> None:
    """Create a table with these rows."""
    await execute(database, MAKE)
    for number in rows:
        await database.write_one(ADD, number=number)


def with_feeds(pool_size: int, *rows: int) -> Callable[[Callable[[Database, OtherProcess], Awaitable[None]]], Any]:
    """Run a test with this pool size, on a table with rows, and with another process beside it."""

    def decorate(test: Callable[[Database, OtherProcess], Awaitable[None]]) -> Any:
        def body(postgresql_url: str) -> None:
            async def with_database() -> None:
                async with (
                    another_process(postgresql_url) as other,
                    opened(postgresql_url, pool_size=pool_size) as database,
                ):
                    await create_feeds(database, *rows)
                    await test(database, other)

            asyncio.run(with_database())

        body.__doc__ = test.__doc__
        return body

    return decorate


# One transaction


@on_postgresql
async def test_waiting_small_units_share_a_transaction(database: Database) -> None:
    """When 8 of 51 waiting units fail, the others are stored in one commit, each with its own result."""
    await create_feeds(database)
    fails = {3: "raise", 9: "constraint", 10: "raise", 17: "raise", 30: "constraint", 31: "raise", 44: "raise", 50: "x"}

    def unit(number: int) -> Work:
        async def work(transaction: Transaction) -> tuple[int, int]:
            transaction_id = await add_unit(number)(transaction)
            if fails.get(number) == "raise":
                raise LookupError(number)
            if fails.get(number) == "constraint":
                await transaction.run(ADD, number=number)
            if fails.get(number) == "x":
                await transaction.one(sql("SELECT * FROM nowhere"))
            return number, transaction_id

        return work

    answers = await asyncio.gather(*(start_write(database, unit(n)) for n in range(MANY)), return_exceptions=True)
    good = [number for number in range(MANY) if number not in fails]
    assert [answer[0] for answer in answers if isinstance(answer, tuple)] == good
    assert len({answer[1] for answer in answers if isinstance(answer, tuple)}) == 1
    kinds = {"raise": LookupError, "constraint": asyncpg.UniqueViolationError, "x": asyncpg.UndefinedTableError}
    assert {number: type(answers[number]) for number in fails} == {n: kinds[how] for n, how in fails.items()}
    assert await numbers(database) == good


@on_postgresql
async def test_a_heavy_unit_has_its_own_transaction(database: Database) -> None:
    """Units of different queues do not share one either."""
    await create_feeds(database)
    heavy = [start_write(database, add_unit(number), rows=HEAVY) for number in (1, 2)]
    others = [start_write(database, add_unit(3)), start_write(database, add_unit(4), queue_key=QUEUE_KEY + 1)]
    assert len(set(await asyncio.gather(*heavy, *others))) == 4


@on_postgresql
async def test_a_unit_that_fails_alone_is_rolled_back(database: Database) -> None:
    """A unit without others has no savepoint; the next one is stored."""
    await create_feeds(database)

    async def fails(transaction: Transaction) -> None:
        await transaction.run(ADD, number=1)
        raise LookupError("as it is")

    for _ in range(3):
        with pytest.raises(LookupError, match="as it is"):
            await start_write(database, fails)
    await start_write(database, add_unit(2))
    assert await numbers(database) == [2]


@pytest.mark.parametrize("state", ["deadlock_detected", "serialization_failure"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_group_is_run_again_after_a_deadlock(postgresql_url: str, state: str, count: int) -> None:
    """All its units, because all were undone; each is stored once, with the result of the last run."""
    runs: list[int] = []

    def unit(number: int) -> Work:
        async def work(transaction: Transaction) -> int:
            runs.append(number)
            await transaction.run(ADD, number=number)
            if number == count and runs.count(number) < 3:
                await transaction.one(sql(FAIL.format(state)))
            return runs.count(number)

        return work

    @on_postgresql
    async def body(database: Database) -> None:
        await create_feeds(database)
        answers = await asyncio.gather(*(start_write(database, unit(number)) for number in range(1, count + 1)))
        assert answers == [3] * count
        assert runs == list(range(1, count + 1)) * 3
        assert await numbers(database) == list(range(1, count + 1))

    body(postgresql_url=postgresql_url)


@on_postgresql
async def test_a_group_with_repeated_deadlocks_is_refused(database: Database) -> None:
    """The attempts are limited; every caller gets an answer, and nothing is stored."""
    await create_feeds(database)

    async def deadlocks(transaction: Transaction) -> None:
        await transaction.one(sql(FAIL.format("deadlock_detected")))

    answers = await asyncio.gather(
        start_write(database, add_unit(1)),
        start_write(database, deadlocks),
        start_write(database, add_unit(2)),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    await start_write(database, add_unit(3))
    assert await numbers(database) == [3]


@on_postgresql
async def test_a_connection_cut_in_a_group_is_a_store_failure(database: Database) -> None:
    """The commit itself may have been cut: no caller is told that anything is stored, or that it is not."""
    await create_feeds(database)

    async def cut(transaction: Transaction) -> None:
        await transaction.one(sql("SELECT pg_terminate_backend(pg_backend_pid())"))

    answers = await asyncio.gather(
        start_write(database, add_unit(1)),
        start_write(database, cut),
        start_write(database, add_unit(2)),
        return_exceptions=True,
    )
    assert [getattr(answer, "is_uncertain", None) for answer in answers] == [True] * 3
    await start_write(database, add_unit(3))
    assert await numbers(database) == [3]


# Another process locks the feed


@with_feeds(4, 1)
async def test_at_most_one_connection_waits_for_a_feed(database: Database, other: OtherProcess) -> None:
    """The other units wait in the process, where they take no resources from others."""
    await other.lock(1)
    started: list[int] = []

    def unit(number: int) -> Work:
        async def work(transaction: Transaction) -> None:
            started.append(number)
            await update_unit(1)(transaction)

        return work

    small = [start_write(database, unit(number)) for number in range(20)]
    heavy = [start_write(database, unit(number), rows=HEAVY) for number in range(20, 24)]
    await other.wait_for_blocked(1)
    for _ in range(20):
        await numbers(database)
    assert await other.count_blocked() == 1
    assert started == [0]
    await other.release()
    await asyncio.gather(*small, *heavy)
    assert started == list(range(24))


def test_a_lock_timeout_refuses_the_group(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All units that wait are refused, the last without a wait of its own, and nothing of them is stored."""

    @with_feeds(4, 1)
    async def body(database: Database, other: OtherProcess) -> None:
        await other.lock(1)
        with monkeypatch.context() as patch:
            patch.setattr(postgresql_transactions, "LOCK_TIMEOUT_S", 0.05)
            answers = await asyncio.gather(
                start_write(database, add_unit(10)),
                start_write(database, update_unit(1)),
                start_write(database, add_unit(11)),
                start_write(database, update_unit(1), rows=HEAVY),
                return_exceptions=True,
            )
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 4
        assert ["55P03" in str(answer) for answer in answers] == [True, True, True, False]
        await other.release()
        await wait_until_answered(lambda: database.write(add_unit(12), queue_key=QUEUE_KEY))
        await asyncio.gather(start_write(database, update_unit(1)), start_write(database, update_unit(1), rows=HEAVY))
        assert await numbers(database) == [1, 12]

    body(postgresql_url)


@with_feeds(6, *range(1, 9))
async def test_reads_and_tokens_are_served_while_all_queues_are_stuck(database: Database, other: OtherProcess) -> None:
    """Queues have their own connections, so token requests always find one."""
    await other.lock(*range(1, 9))
    stuck = [start_write(database, update_unit(number), queue_key=number) for number in range(1, 9)]
    stuck += [start_write(database, update_unit(number), queue_key=number, rows=HEAVY) for number in range(1, 9)]
    await other.wait_for_blocked(3)
    async with asyncio.timeout(60):
        await asyncio.gather(*(database.all(ALL) for _ in range(10)))
        await asyncio.gather(*(database.write(add_unit(number)) for number in range(10, 20)))
        await asyncio.gather(*(database.write_one(ADD, number=number) for number in range(20, 30)))
    assert not any(one.done() for one in stuck)
    await other.release()
    assert await asyncio.gather(*stuck) == [1] * 16


@with_feeds(8, *range(1, 9))
async def test_stuck_heavy_units_leave_capacity_for_small_ones(database: Database, other: OtherProcess) -> None:
    """Heavy units get at most half the connections for queues."""
    await other.lock(*range(1, 9))
    stuck = [start_write(database, update_unit(number), queue_key=number, rows=HEAVY) for number in range(1, 9)]
    await other.wait_for_blocked(2)
    async with asyncio.timeout(60):
        await asyncio.gather(*(start_write(database, add_unit(number), queue_key=number) for number in range(10, 30)))
    assert await other.count_blocked() == 2
    await other.release()
    assert await asyncio.gather(*stuck) == [1] * 8


@with_feeds(4, 1)
async def test_many_writers_on_one_and_many_feeds_all_finish(database: Database, other: OtherProcess) -> None:
    """32 small and 32 heavy ones each, over two connections; readers have the other two."""
    one = [start_write(database, add_unit(100 + n), rows=1 + HEAVY * (n % 2)) for n in range(64)]
    each = [
        start_write(database, add_unit(200 + n), queue_key=100 + n % 32, rows=1 + HEAVY * (n % 2)) for n in range(64)
    ]
    reads = [database.one_large(ALL) if n % 2 else database.all(ALL) for n in range(64)]
    await asyncio.gather(*one, *each, *reads)
    assert await numbers(database) == [1, *range(100, 164), *range(200, 264)]


@with_feeds(4, 1)
async def test_a_small_unit_overtakes_a_heavy_one_without_connection(database: Database, other: OtherProcess) -> None:
    """A heavy unit that has not started delays nobody, even if other feeds keep it waiting."""
    await other.lock(1)
    stuck = start_write(database, update_unit(1), queue_key=1, rows=HEAVY)
    await other.wait_for_blocked(1)
    waiting = start_write(database, add_unit(20), queue_key=2, rows=HEAVY)
    await let_units_queue()
    async with asyncio.timeout(60):
        await start_write(database, add_unit(10), queue_key=2)
        await start_write(database, add_unit(11), queue_key=2)
    assert not waiting.done()
    assert not stuck.done()
    assert await numbers(database) == [1, 10, 11]
    await other.release()
    await asyncio.gather(stuck, waiting)
    assert await numbers(database) == [1, 10, 11, 20]


# Connections


@with_feeds(1, 1)
async def test_a_connection_that_cannot_be_rolled_back_is_not_reused(database: Database, other: OtherProcess) -> None:
    """Its next user would commit what was left in it."""
    await other.connection.execute("SELECT pg_advisory_lock(7)")
    pids: list[int] = []

    async def leaves_a_statement_behind(transaction: Transaction) -> None:
        await transaction.run(ADD, number=2)
        row = await transaction.one(TRANSACTION)
        assert row is not None
        pids.append(row["pid"])
        left = asyncio.ensure_future(transaction.one(sql("SELECT pg_advisory_xact_lock(7)")))
        left.add_done_callback(lambda done: done.exception())
        await other.wait_for_blocked(1)
        raise LookupError("while a statement is in progress, ROLLBACK is refused by the library")

    async def next_one(transaction: Transaction) -> None:
        row = await transaction.one(TRANSACTION)
        assert row is not None
        pids.append(row["pid"])
        await transaction.run(ADD, number=3)

    with pytest.raises(LookupError):
        await start_write(database, leaves_a_statement_behind)
    await other.connection.execute("SELECT pg_advisory_unlock(7)")
    await start_write(database, next_one)
    assert len(set(pids)) == 2
    assert await numbers(database) == [1, 3]


@with_feeds(1, 1)
async def test_an_empty_queue_is_removed(database: Database, other: OtherProcess) -> None:
    """There are as many feeds as organizations and channels, so queues must not accumulate."""
    assert isinstance(database, postgresql.Postgresql)
    await asyncio.gather(
        *(start_write(database, add_unit(100 + queue_key), queue_key=queue_key) for queue_key in range(20))
    )
    await start_write(database, add_unit(200), queue_key=1)
    await let_units_queue()
    assert len(database._queues) == 0
