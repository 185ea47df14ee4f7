"""A heavy unit on SQLite: a transaction of its own, each statement one long call in a thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from stoplist.db import Database, Transaction, sqlite
from stoplist.errors import StoreUnavailable
from tests.builders import execute, on_sqlite, sql
from tests.db.full_disk import no_room_for_the_log, of, two_pages_left
from tests.db.waiting import ADD, HEAVY, MAKE, ONE, numbers, prepared, queued

FILL = sql("INSERT INTO things (number, content) VALUES (:number, :content)")
HOLD = sql("SELECT hold() AS went_on")
PATIENCE_S = 60.0


class Held:
    """An SQL function that does not return until it is let go."""

    def __init__(self) -> None:
        self.is_reached, self._is_let_go = threading.Event(), threading.Event()

    def __call__(self) -> bool:
        self.is_reached.set()
        return self._is_let_go.wait(PATIENCE_S)

    def let_go(self) -> None:
        self._is_let_go.set()

    async def reached(self) -> None:
        """A statement is in the middle of it, and yet the loop goes on."""
        assert await asyncio.to_thread(self.is_reached.wait, PATIENCE_S)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """`hold()` on every connection that is opened from now on."""
    held, connect = Held(), sqlite.connect

    def with_function(*values: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*values, **named)
        connection.create_function("hold", 0, held)
        return connection

    monkeypatch.setattr(sqlite, "connect", with_function)
    yield held
    held.let_go()


def heavy(database: Database, number: int, content: object = "") -> "asyncio.Task[int]":
    """A heavy unit of one statement is asked for."""

    async def unit(transaction: Transaction) -> int:
        return await transaction.run(FILL, number=number, content=content)

    async def ask() -> int:
        return await database.write(unit, rows=HEAVY)

    return asyncio.create_task(ask())


@pytest.mark.parametrize("way", ["one", "all", "run"])
def test_the_loop_goes_on_while_a_statement_of_a_heavy_unit_is_in_progress(
    hold: Held, sqlite_url: str, way: str
) -> None:
    """A batch takes a tenth of a second and more: every other request would wait as long."""

    @on_sqlite
    async def body(database: Database) -> None:
        await prepared(database)
        writing = asyncio.create_task(database.write(lambda transaction: getattr(transaction, way)(HOLD), rows=HEAVY))
        await hold.reached()
        assert await numbers(database) == []
        assert not writing.done()
        hold.let_go()
        await writing

    body(sqlite_url=sqlite_url)


def test_the_loop_goes_on_while_a_heavy_read_is_in_progress(hold: Held, sqlite_url: str) -> None:
    """It has a connection and a thread of its own; writers and readers go on."""

    @on_sqlite
    async def body(database: Database) -> None:
        await prepared(database)
        reading = asyncio.create_task(database.one_large(HOLD))
        await hold.reached()
        await heavy(database, 1)
        assert await numbers(database) == [1]
        assert (await database.one_large(ONE))["count"] == 1  # type: ignore[index]
        assert not reading.done()
        hold.let_go()
        row = await reading
        assert row is not None
        assert row["went_on"]

    body(sqlite_url=sqlite_url)


@on_sqlite
async def test_a_heavy_unit_that_finds_no_room_is_refused_and_the_next_fits(database: Database) -> None:
    """SQLite undoes it when the disk is full, in whichever statement; those that wait behind it pay nothing."""
    await execute(database, MAKE)

    async def big(transaction: Transaction) -> None:
        await transaction.run(ADD, number=1)
        await transaction.run(FILL, number=2, content="x" * 100_000)

    with two_pages_left(database):
        refused = asyncio.create_task(database.write(big, rows=HEAVY))
        await queued()
        answers = await asyncio.gather(refused, heavy(database, 3), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable, int]
    assert "SQLITE_FULL" in str(answers[0])
    assert await numbers(database) == [3]
    await database.write(big, rows=HEAVY)
    assert await numbers(database) == [1, 2, 3]


@on_sqlite
async def test_a_heavy_unit_whose_commit_finds_no_room_is_refused(database: Database) -> None:
    """The operating system refuses to let the log grow in the middle of COMMIT."""
    await execute(database, MAKE)
    with no_room_for_the_log(database), pytest.raises(StoreUnavailable):
        await heavy(database, 1, "x" * 50_000)
    assert await numbers(database) == []
    await heavy(database, 2, "x" * 50_000)
    assert await numbers(database) == [2]


@on_sqlite
async def test_a_heavy_unit_with_a_wrong_statement_is_a_defect_and_the_next_works(database: Database) -> None:
    """It is not taken for the store's trouble, and its transaction does not stay open."""
    await execute(database, MAKE)

    async def wrong(transaction: Transaction) -> None:
        await transaction.run(ADD, number=1)
        await transaction.run(sql("INSERT INTO nowhere VALUES (1)"))

    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await database.write(wrong, rows=HEAVY)
    await heavy(database, 2)
    assert await numbers(database) == [2]


@on_sqlite
async def test_while_another_process_writes_heavy_units_wait_their_time_and_are_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left without an answer, readers are served meanwhile, and later units work."""
    await execute(database, MAKE)
    with closing(sqlite3.connect(of(database)._path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "LOCK_WAIT_S", 0.01)
            asked = [heavy(database, number) for number in (1, 2)]
            await queued()
            assert await numbers(database) == []
            answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
        other.execute("ROLLBACK")
    await heavy(database, 3)
    assert await numbers(database) == [3]


@on_sqlite
async def test_a_heavy_unit_is_one_commit(database: Database) -> None:
    """Its statements are not committed one by one, and no two units share a transaction."""
    await execute(database, MAKE)
    commits = database.counts.commits
    await asyncio.gather(*(heavy(database, number) for number in range(4)))
    assert database.counts.commits - commits == 4
    assert await numbers(database) == [0, 1, 2, 3]
