"""Units of work that tests can hold in the middle, with a log of their start order; and locks of another process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from stoplist.db import HEAVY_ROWS, Database, Transaction, Unit
from tests.builders import direct, execute, sql

HEAVY = HEAVY_ROWS + 1
QUEUE_KEY = 7

MAKE = "CREATE TABLE things (number BIGINT NOT NULL PRIMARY KEY, content TEXT)"
ADD = sql("INSERT INTO things (number, content) VALUES (:number, '')")
CHANGE = sql("UPDATE things SET content = :content WHERE number = :number")
ALL = sql("SELECT number FROM things ORDER BY number")
ONE = sql("SELECT COUNT(*) AS count FROM things")

_WAITING = """
    SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"""


async def numbers(database: Database) -> list[int]:
    """Return the stored numbers."""
    return [row["number"] for row in await database.all(ALL)]


class Units:
    """Units that each add a number, with a log of the order in which they start."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.started: list[int] = []
        self._held: dict[int, asyncio.Event] = {}
        self._reached: dict[int, asyncio.Event] = {}

    @property
    def start_order(self) -> list[int]:
        """Return the numbers in the order of their first start."""
        return list(dict.fromkeys(self.started))

    def small(self, number: int, *, queue_key: int = QUEUE_KEY) -> "asyncio.Task[None]":
        """Start the write of a small unit."""
        return self._start_write(self._unit(number), queue_key=queue_key, rows=1)

    def heavy(self, number: int, *, queue_key: int = QUEUE_KEY) -> "asyncio.Task[None]":
        """Start the write of a heavy unit."""
        return self._start_write(self._unit(number), queue_key=queue_key, rows=HEAVY)

    async def start_held(self, number: int) -> "asyncio.Task[None]":
        """Start the write of a heavy unit, and wait until it has written and is held until `release`."""
        self._held[number], self._reached[number] = asyncio.Event(), asyncio.Event()
        write_task = self.heavy(number)
        reached = asyncio.ensure_future(self._reached[number].wait())
        await asyncio.wait({write_task, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        assert not write_task.done()
        return write_task

    def release(self, number: int) -> None:
        self._held[number].set()

    def _start_write(self, unit: Unit[None], *, queue_key: int, rows: int) -> "asyncio.Task[None]":
        async def write() -> None:
            await self.database.write(unit, queue_key=queue_key, rows=rows)

        return asyncio.create_task(write())

    def _unit(self, number: int) -> Unit[None]:
        async def work(transaction: Transaction) -> None:
            self.started.append(number)
            await transaction.run(ADD, number=number)
            if number in self._held:
                self._reached[number].set()
                await self._held[number].wait()

        return work


async def let_units_queue() -> None:
    """Let the writes started so far join their queues, which takes a few iterations of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


async def create_units(database: Database) -> Units:
    """Return units on an empty table."""
    await execute(database, MAKE)
    return Units(database)


class OtherProcess:
    """A connection of another process that locks rows, and one that counts blocked connections."""

    def __init__(self, connection: Any, observer: Any) -> None:
        self.connection, self._observer = connection, observer

    async def lock(self, *locked: int) -> None:
        """Lock these rows until `release`."""
        await self.connection.execute("BEGIN")
        for number in locked:
            await self.connection.execute("UPDATE things SET content = 'theirs' WHERE number = $1", number)

    async def release(self) -> None:
        await self.connection.execute("ROLLBACK")

    async def count_blocked(self) -> int:
        """Return how many connections wait for a lock."""
        return int(await self._observer.fetchval(_WAITING))

    async def wait_for_blocked(self, count: int) -> None:
        """Wait until so many connections wait for a lock."""
        async with asyncio.timeout(60):
            while await self.count_blocked() < count:
                pass


@asynccontextmanager
async def another_process(url: str) -> AsyncIterator[OtherProcess]:
    """Open the connections of another process."""
    connection, observer = await asyncpg.connect(direct(url)), await asyncpg.connect(direct(url))
    try:
        yield OtherProcess(connection, observer)
    finally:
        await connection.close()
        await observer.close()
