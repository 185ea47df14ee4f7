"""Units, and checks that a database has recovered, for the tests of a failing PostgreSQL."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from stoplist.db import Database, Transaction
from stoplist.errors import StoreUnavailable
from tests.builders import sql
from tests.constants import PATIENCE_S
from tests.db.unit_fixture import ADD

POOL = 4
MAX_WAITING = 50
PID = sql("SELECT pg_backend_pid() AS pid")

T = TypeVar("T")
Work = Callable[[Transaction], Awaitable[Any]]


def add_unit(number: int) -> Work:
    async def work(transaction: Transaction) -> int:
        return await transaction.run(ADD, number=number)

    return work


async def wait_until_recovered(database: Database) -> None:
    """Wait until the database serves writes of both kinds again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await database.write(lambda transaction: transaction.one(PID))
                await database.write(lambda transaction: transaction.one(PID), queue_key=-1)
            except StoreUnavailable:
                continue
            return


async def wait_until_answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until it is not refused, and return its result."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(0.01)


async def assert_all_connections_usable(database: Database) -> None:
    """Assert that no connection was lost: as many units as there are connections run at the same time."""
    for in_queues in (False, True):
        barrier = asyncio.Barrier(POOL // 2)

        async def meet(transaction: Transaction, barrier: asyncio.Barrier = barrier) -> None:
            await transaction.one(PID)
            await barrier.wait()

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(
                *(database.write(meet, queue_key=1_000 + at if in_queues else None) for at in range(POOL // 2))
            )
