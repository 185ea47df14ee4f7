"""Units of work that are held in the middle, and a log of who ran when: what the tests of fair waiting are made of."""

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
    """What is stored."""
    return [row["number"] for row in await database.all(ALL)]


class Units:
    """Units that each add a number, with a log of those that began, in this order."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.began: list[int] = []
        self._held: dict[int, asyncio.Event] = {}
        self._reached: dict[int, asyncio.Event] = {}

    @property
    def in_order(self) -> list[int]:
        """Those that began, without what was run again."""
        return list(dict.fromkeys(self.began))

    def small(self, number: int, *, queue_key: int = QUEUE_KEY) -> "asyncio.Task[None]":
        """A small unit is asked for."""
        return self._asked(self._unit(number), queue_key=queue_key, rows=1)

    def heavy(self, number: int, *, queue_key: int = QUEUE_KEY) -> "asyncio.Task[None]":
        """A heavy unit is asked for."""
        return self._asked(self._unit(number), queue_key=queue_key, rows=HEAVY)

    async def held(self, number: int, *, queue_key: int = QUEUE_KEY, rows: int = HEAVY) -> "asyncio.Task[None]":
        """A unit that has written, and goes no further until it is let go."""
        self._held[number], self._reached[number] = asyncio.Event(), asyncio.Event()
        asked = self._asked(self._unit(number), queue_key=queue_key, rows=rows)
        reaching = asyncio.ensure_future(self._reached[number].wait())
        await asyncio.wait({asked, reaching}, return_when=asyncio.FIRST_COMPLETED)
        reaching.cancel()
        assert not asked.done()
        return asked

    def let_go(self, number: int) -> None:
        self._held[number].set()

    def _asked(self, unit: Unit[None], *, queue_key: int, rows: int) -> "asyncio.Task[None]":
        async def ask() -> None:
            await self.database.write(unit, queue_key=queue_key, rows=rows)

        return asyncio.create_task(ask())

    def _unit(self, number: int) -> Unit[None]:
        async def work(transaction: Transaction) -> None:
            self.began.append(number)
            await transaction.run(ADD, number=number)
            if number in self._held:
                self._reached[number].set()
                await self._held[number].wait()

        return work


async def queued() -> None:
    """Whoever was just asked for stands in its queue: asking takes a few turns of the loop, and nothing else."""
    for _ in range(5):
        await asyncio.sleep(0)


async def prepared(database: Database) -> Units:
    """Units on an empty table."""
    await execute(database, MAKE)
    return Units(database)


class Other:
    """A connection of another process, which holds rows locked, and one that looks who waits."""

    def __init__(self, connection: Any, observer: Any) -> None:
        self.connection, self._observer = connection, observer

    async def lock(self, *locked: int) -> None:
        """Hold these rows until the connection is rolled back."""
        await self.connection.execute("BEGIN")
        for number in locked:
            await self.connection.execute("UPDATE things SET content = 'theirs' WHERE number = $1", number)

    async def let_go(self) -> None:
        await self.connection.execute("ROLLBACK")

    async def waiting(self) -> int:
        """How many connections wait for a lock."""
        return int(await self._observer.fetchval(_WAITING))

    async def until_waiting(self, count: int) -> None:
        """So many connections wait for a lock."""
        async with asyncio.timeout(60):
            while await self.waiting() < count:
                pass


@asynccontextmanager
async def another_process(url: str) -> AsyncIterator[Other]:
    """Connections that are none of ours."""
    connection, observer = await asyncpg.connect(direct(url)), await asyncpg.connect(direct(url))
    try:
        yield Other(connection, observer)
    finally:
        await connection.close()
        await observer.close()
