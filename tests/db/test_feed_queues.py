"""Lines on PostgreSQL: the units of one feed wait for one another in the process, not in the database."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from stoplist.db import Database, Transaction, postgresql
from stoplist.errors import StoreUnavailable
from tests.builders import execute, on_postgresql, opened, pooled, sql
from tests.db.waiting import ADD, ALL, CHANGE, HEAVY, MAKE, QUEUE_KEY, Other, another_process, numbers, queued

TRANSACTION = sql("SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) AS id, pg_backend_pid() AS pid")
FAIL = "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '{}'; END $$"
MANY = 51

pytestmark = pytest.mark.usefixtures("patient")

Work = Callable[[Transaction], Awaitable[Any]]


@pytest.fixture(params=["direct", "pooled"])
def postgresql_url(postgresql_url: str, request: pytest.FixtureRequest) -> str:
    """An empty database; every test runs without a pooler and through one."""
    if request.param == "direct":
        return postgresql_url
    return pooled(request.getfixturevalue("pgbouncer"), postgresql_url)


def asked(database: Database, unit: Work, *, queue_key: int = QUEUE_KEY, rows: int = 1) -> "asyncio.Task[Any]":
    """A unit is asked for."""

    async def ask() -> Any:
        return await database.write(unit, queue_key=queue_key, rows=rows)

    return asyncio.create_task(ask())


def adds(number: int) -> Work:
    """Adds a number; returns the transaction that it was added in."""

    async def work(transaction: Transaction) -> int:
        await transaction.run(ADD, number=number)
        row = await transaction.one(TRANSACTION)
        assert row is not None
        return int(row["id"])

    return work


def changes(number: int) -> Work:
    """Changes a row that stands for a feed, and so waits for whoever has it locked."""

    async def work(transaction: Transaction) -> int:
        return await transaction.run(CHANGE, number=number, content="ours")

    return work


async def feeds(database: Database, *rows: int) -> None:
    """A table with these rows."""
    await execute(database, MAKE)
    for number in rows:
        await database.write_one(ADD, number=number)


def with_feeds(pool_size: int, *rows: int) -> Callable[[Callable[[Database, Other], Awaitable[None]]], Any]:
    """A test with so many connections, on a table with these rows, and another process beside it."""

    def decorate(test: Callable[[Database, Other], Awaitable[None]]) -> Any:
        def body(postgresql_url: str) -> None:
            async def with_database() -> None:
                async with (
                    another_process(postgresql_url) as other,
                    opened(postgresql_url, pool_size=pool_size) as database,
                ):
                    await feeds(database, *rows)
                    await test(database, other)

            asyncio.run(with_database())

        body.__doc__ = test.__doc__
        return body

    return decorate


# One transaction


@on_postgresql
async def test_small_units_that_wait_join_one_transaction_and_those_that_fail_fail_alone(database: Database) -> None:
    """Of 51 units that wait together eight fail; the others are stored, in one commit, each with its own answer."""
    await feeds(database)
    fails = {3: "raise", 9: "constraint", 10: "raise", 17: "raise", 30: "constraint", 31: "raise", 44: "raise", 50: "x"}

    def unit(number: int) -> Work:
        async def work(transaction: Transaction) -> tuple[int, int]:
            transaction_id = await adds(number)(transaction)
            if fails.get(number) == "raise":
                raise LookupError(number)
            if fails.get(number) == "constraint":
                await transaction.run(ADD, number=number)
            if fails.get(number) == "x":
                await transaction.one(sql("SELECT * FROM nowhere"))
            return number, transaction_id

        return work

    answers = await asyncio.gather(*(asked(database, unit(n)) for n in range(MANY)), return_exceptions=True)
    good = [number for number in range(MANY) if number not in fails]
    assert [answer[0] for answer in answers if isinstance(answer, tuple)] == good
    assert len({answer[1] for answer in answers if isinstance(answer, tuple)}) == 1
    kinds = {"raise": LookupError, "constraint": asyncpg.UniqueViolationError, "x": asyncpg.UndefinedTableError}
    assert {number: type(answers[number]) for number in fails} == {n: kinds[how] for n, how in fails.items()}
    assert await numbers(database) == good


@on_postgresql
async def test_a_heavy_unit_shares_its_transaction_with_nobody(database: Database) -> None:
    """Nor do units of different lines share one."""
    await feeds(database)
    heavy = [asked(database, adds(number), rows=HEAVY) for number in (1, 2)]
    others = [asked(database, adds(3)), asked(database, adds(4), queue_key=QUEUE_KEY + 1)]
    assert len(set(await asyncio.gather(*heavy, *others))) == 4


@on_postgresql
async def test_a_unit_that_fails_alone_undoes_itself(database: Database) -> None:
    """There is no savepoint around a unit that waits with no other; the next one is stored."""
    await feeds(database)

    async def fails(transaction: Transaction) -> None:
        await transaction.run(ADD, number=1)
        raise LookupError("as it is")

    for _ in range(3):
        with pytest.raises(LookupError, match="as it is"):
            await asked(database, fails)
    await asked(database, adds(2))
    assert await numbers(database) == [2]


@pytest.mark.parametrize("state", ["deadlock_detected", "serialization_failure"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_group_that_met_a_deadlock_is_run_again(postgresql_url: str, state: str, count: int) -> None:
    """All of it, for all of it was undone; each unit is stored once and its answer is that of the last run."""
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
        await feeds(database)
        answers = await asyncio.gather(*(asked(database, unit(number)) for number in range(1, count + 1)))
        assert answers == [3] * count
        assert runs == list(range(1, count + 1)) * 3
        assert await numbers(database) == list(range(1, count + 1))

    body(postgresql_url=postgresql_url)


@on_postgresql
async def test_a_group_that_meets_a_deadlock_again_and_again_is_refused(database: Database) -> None:
    """The tries have an end; nobody of the group is left without an answer, and nothing is stored."""
    await feeds(database)

    async def deadlocks(transaction: Transaction) -> None:
        await transaction.one(sql(FAIL.format("deadlock_detected")))

    answers = await asyncio.gather(
        asked(database, adds(1)), asked(database, deadlocks), asked(database, adds(2)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    await asked(database, adds(3))
    assert await numbers(database) == [3]


@on_postgresql
async def test_a_connection_that_is_cut_in_a_group_is_the_store_s_trouble(database: Database) -> None:
    """It may have been the commit that was cut: nobody is told that anything is stored, nor that it is not."""
    await feeds(database)

    async def cut(transaction: Transaction) -> None:
        await transaction.one(sql("SELECT pg_terminate_backend(pg_backend_pid())"))

    answers = await asyncio.gather(
        asked(database, adds(1)), asked(database, cut), asked(database, adds(2)), return_exceptions=True
    )
    assert [getattr(answer, "is_uncertain", None) for answer in answers] == [True] * 3
    await asked(database, adds(3))
    assert await numbers(database) == [3]


# Another process holds the feed


@with_feeds(4, 1)
async def test_one_connection_at_most_waits_for_a_feed(database: Database, other: Other) -> None:
    """However many units there are: the others wait in the process, where they take nothing from anybody."""
    await other.lock(1)
    began: list[int] = []

    def unit(number: int) -> Work:
        async def work(transaction: Transaction) -> None:
            began.append(number)
            await changes(1)(transaction)

        return work

    small = [asked(database, unit(number)) for number in range(20)]
    heavy = [asked(database, unit(number), rows=HEAVY) for number in range(20, 24)]
    await other.until_waiting(1)
    for _ in range(20):
        await numbers(database)
    assert await other.waiting() == 1
    assert began == [0]
    await other.let_go()
    await asyncio.gather(*small, *heavy)
    assert began == list(range(24))


def test_a_feed_that_another_process_holds_too_long_refuses_the_group(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lock_timeout`: all who wait together are told to try again, nothing of them is stored, and the next succeed."""

    @with_feeds(4, 1)
    async def body(database: Database, other: Other) -> None:
        await other.lock(1)
        with monkeypatch.context() as patch:
            patch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.05)
            answers = await asyncio.gather(
                asked(database, adds(10)),
                asked(database, changes(1)),
                asked(database, adds(11)),
                asked(database, changes(1), rows=HEAVY),
                return_exceptions=True,
            )
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 4
        assert all("55P03" in str(answer) for answer in answers)
        await other.let_go()
        await asyncio.gather(asked(database, changes(1)), asked(database, changes(1), rows=HEAVY))
        assert await numbers(database) == [1]

    body(postgresql_url)


@with_feeds(6, *range(1, 9))
async def test_when_every_line_is_stuck_readers_and_tokens_are_served(database: Database, other: Other) -> None:
    """Lines have connections of their own: what they take is never missing where a token is asked for."""
    await other.lock(*range(1, 9))
    stuck = [asked(database, changes(number), queue_key=number) for number in range(1, 9)]
    stuck += [asked(database, changes(number), queue_key=number, rows=HEAVY) for number in range(1, 9)]
    await other.until_waiting(3)
    async with asyncio.timeout(60):
        await asyncio.gather(*(database.all(ALL) for _ in range(10)))
        await asyncio.gather(*(database.write(adds(number)) for number in range(10, 20)))
        await asyncio.gather(*(database.write_one(ADD, number=number) for number in range(20, 30)))
    assert not any(one.done() for one in stuck)
    await other.let_go()
    assert await asyncio.gather(*stuck) == [1] * 16


@with_feeds(8, *range(1, 9))
async def test_heavy_units_that_are_stuck_leave_room_for_small_ones_of_other_feeds(
    database: Database, other: Other
) -> None:
    """At most half the connections for lines are with heavy units."""
    await other.lock(*range(1, 9))
    stuck = [asked(database, changes(number), queue_key=number, rows=HEAVY) for number in range(1, 9)]
    await other.until_waiting(2)
    async with asyncio.timeout(60):
        await asyncio.gather(*(asked(database, adds(number), queue_key=number) for number in range(10, 30)))
    assert await other.waiting() == 2
    await other.let_go()
    assert await asyncio.gather(*stuck) == [1] * 8


@with_feeds(4, 1)
async def test_many_writers_on_one_feed_and_on_many_all_come_to_their_turn(database: Database, other: Other) -> None:
    """32 small and 32 heavy ones each, over two connections; whoever reads meanwhile has the other two."""
    one = [asked(database, adds(100 + n), rows=1 + HEAVY * (n % 2)) for n in range(64)]
    each = [asked(database, adds(200 + n), queue_key=100 + n % 32, rows=1 + HEAVY * (n % 2)) for n in range(64)]
    reads = [database.one_large(ALL) if n % 2 else database.all(ALL) for n in range(64)]
    await asyncio.gather(*one, *each, *reads)
    assert await numbers(database) == [1, *range(100, 164), *range(200, 264)]


@with_feeds(4, 1)
async def test_a_small_unit_goes_ahead_of_a_heavy_one_that_waits_for_a_connection(
    database: Database, other: Other
) -> None:
    """A heavy unit that has not begun holds up nobody, also where it is other feeds that keep it waiting."""
    await other.lock(1)
    stuck = asked(database, changes(1), queue_key=1, rows=HEAVY)
    await other.until_waiting(1)
    waiting = asked(database, adds(20), queue_key=2, rows=HEAVY)
    await queued()
    async with asyncio.timeout(60):
        await asked(database, adds(10), queue_key=2)
        await asked(database, adds(11), queue_key=2)
    assert not waiting.done()
    assert not stuck.done()
    assert await numbers(database) == [1, 10, 11]
    await other.let_go()
    await asyncio.gather(stuck, waiting)
    assert await numbers(database) == [1, 10, 11, 20]


# Connections


@with_feeds(1, 1)
async def test_a_connection_that_cannot_be_rolled_back_is_not_handed_on(database: Database, other: Other) -> None:
    """Whoever got it next would commit what was left in it."""
    await other.connection.execute("SELECT pg_advisory_lock(7)")
    pids: list[int] = []

    async def leaves_a_statement_behind(transaction: Transaction) -> None:
        await transaction.run(ADD, number=2)
        row = await transaction.one(TRANSACTION)
        assert row is not None
        pids.append(row["pid"])
        left = asyncio.ensure_future(transaction.one(sql("SELECT pg_advisory_xact_lock(7)")))
        left.add_done_callback(lambda done: done.exception())
        await other.until_waiting(1)
        raise LookupError("while a statement is in progress, ROLLBACK is refused by the library")

    async def next_one(transaction: Transaction) -> None:
        row = await transaction.one(TRANSACTION)
        assert row is not None
        pids.append(row["pid"])
        await transaction.run(ADD, number=3)

    with pytest.raises(LookupError):
        await asked(database, leaves_a_statement_behind)
    await other.connection.execute("SELECT pg_advisory_unlock(7)")
    await asked(database, next_one)
    assert len(set(pids)) == 2
    assert await numbers(database) == [1, 3]


@with_feeds(1, 1)
async def test_a_line_that_is_empty_is_forgotten(database: Database, other: Other) -> None:
    """There are as many feeds as organizations and channels: what was asked for once must not be kept for ever."""
    assert isinstance(database, postgresql.Postgresql)
    await asyncio.gather(*(asked(database, adds(100 + queue_key), queue_key=queue_key) for queue_key in range(20)))
    await asked(database, adds(200), queue_key=1)
    await queued()
    assert len(database._queues) == 0
