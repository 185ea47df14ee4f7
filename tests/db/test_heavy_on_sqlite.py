"""A heavy unit on SQLite: its own transaction, each statement one long call in a thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from stoplist.db import Database, Transaction, sqlite, sqlite_connection, sqlite_readers
from stoplist.errors import StoreUnavailable
from tests.builders import execute, on_sqlite, sql
from tests.constants import PATIENCE_S
from tests.db.full_disk import driver_of, full_log, two_free_pages
from tests.db.unit_fixture import ADD, HEAVY, MAKE, ONE, create_units, let_units_queue, numbers

pytestmark = pytest.mark.interpreter

FILL = sql("INSERT INTO things (number, content) VALUES (:number, :content)")
HOLD = sql("SELECT hold() AS went_on")


class BlockingFunction:
    """An SQL function that does not return until `release`."""

    def __init__(self) -> None:
        self.is_reached, self._is_let_go = threading.Event(), threading.Event()

    def __call__(self) -> bool:
        self.is_reached.set()
        return self._is_let_go.wait(PATIENCE_S)

    def release(self) -> None:
        self._is_let_go.set()

    async def reached(self) -> None:
        """Wait until a statement is inside the function. The event loop must be running for this."""
        assert await asyncio.to_thread(self.is_reached.wait, PATIENCE_S)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingFunction]:
    """Register the function as `hold()` on every connection opened from now on."""
    function, connect = BlockingFunction(), sqlite_connection.connect

    def with_function(*values: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*values, **named)
        connection.create_function("hold", 0, function)
        return connection

    for module in (sqlite, sqlite_readers):
        monkeypatch.setattr(module, "connect", with_function)
    yield function
    function.release()


def heavy(database: Database, number: int, content: object = "") -> "asyncio.Task[int]":
    """Start the write of a heavy unit of one statement."""

    async def unit(transaction: Transaction) -> int:
        return await transaction.run(FILL, number=number, content=content)

    async def write() -> int:
        return await database.write(unit, rows=HEAVY)

    return asyncio.create_task(write())


@pytest.mark.parametrize("way", ["one", "all", "run"])
def test_a_statement_of_a_heavy_unit_does_not_block_the_loop(hold: BlockingFunction, sqlite_url: str, way: str) -> None:
    """A batch takes a tenth of a second and more; every other request would wait as long."""

    @on_sqlite
    async def body(database: Database) -> None:
        await create_units(database)
        writing = asyncio.create_task(database.write(lambda transaction: getattr(transaction, way)(HOLD), rows=HEAVY))
        await hold.reached()
        assert await numbers(database) == []
        assert not writing.done()
        hold.release()
        await writing

    body(sqlite_url=sqlite_url)


def test_a_heavy_read_does_not_block_the_loop(hold: BlockingFunction, sqlite_url: str) -> None:
    """It has its own connection and thread; writers and readers go on."""

    @on_sqlite
    async def body(database: Database) -> None:
        await create_units(database)
        reading = asyncio.create_task(database.one_large(HOLD))
        await hold.reached()
        await heavy(database, 1)
        assert await numbers(database) == [1]
        assert (await database.one_large(ONE))["count"] == 1  # type: ignore[index]
        assert not reading.done()
        hold.release()
        row = await reading
        assert row is not None
        assert row["went_on"]

    body(sqlite_url=sqlite_url)


@on_sqlite
async def test_a_full_disk_refuses_one_heavy_unit(database: Database) -> None:
    """SQLite rolls it back in whichever statement the disk is full; the units behind it are unaffected."""
    await execute(database, MAKE)

    async def big(transaction: Transaction) -> None:
        await transaction.run(ADD, number=1)
        await transaction.run(FILL, number=2, content="x" * 100_000)

    with two_free_pages(database):
        refused = asyncio.create_task(database.write(big, rows=HEAVY))
        await let_units_queue()
        answers = await asyncio.gather(refused, heavy(database, 3), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable, int]
    assert "SQLITE_FULL" in str(answers[0])
    assert await numbers(database) == [3]
    await database.write(big, rows=HEAVY)
    assert await numbers(database) == [1, 2, 3]


@on_sqlite
async def test_a_heavy_unit_whose_commit_fails_is_refused(database: Database) -> None:
    """The operating system refuses to let the log grow in the middle of COMMIT."""
    await execute(database, MAKE)
    with full_log(database), pytest.raises(StoreUnavailable):
        await heavy(database, 1, "x" * 50_000)
    assert await numbers(database) == []
    await heavy(database, 2, "x" * 50_000)
    assert await numbers(database) == [2]


@on_sqlite
async def test_a_wrong_statement_in_a_heavy_unit_is_a_defect(database: Database) -> None:
    """It is not reported as a store failure, and its transaction does not stay open."""
    await execute(database, MAKE)

    async def wrong(transaction: Transaction) -> None:
        await transaction.run(ADD, number=1)
        await transaction.run(sql("INSERT INTO nowhere VALUES (1)"))

    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await database.write(wrong, rows=HEAVY)
    await heavy(database, 2)
    assert await numbers(database) == [2]


@on_sqlite
async def test_heavy_units_time_out_while_another_process_writes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every caller gets an answer, readers are served meanwhile, and later units work."""
    await execute(database, MAKE)
    with closing(sqlite3.connect(driver_of(database)._path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "LOCK_WAIT_S", 0.01)
            callers = [heavy(database, number) for number in (1, 2)]
            await let_units_queue()
            assert await numbers(database) == []
            answers = await asyncio.gather(*callers, return_exceptions=True)
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
