"""What tests of PostgreSQL in trouble ask of a database before and after."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stoplist.db import Database, Transaction
from stoplist.errors import StoreUnavailable
from tests.builders import sql
from tests.db.waiting import ADD

POOL = 4
MAY_WAIT = 50
PATIENCE_S = 60.0
PID = sql("SELECT pg_backend_pid() AS pid")

Work = Callable[[Transaction], Awaitable[Any]]


def adds(number: int) -> Work:
    async def work(transaction: Transaction) -> int:
        return await transaction.run(ADD, number=number)

    return work


async def healed(database: Database) -> None:
    """It serves again, without a hand."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await database.write(lambda transaction: transaction.one(PID))
                await database.write(lambda transaction: transaction.one(PID), queue_key=-1)
            except StoreUnavailable:
                continue
            return


async def has_all_connections(database: Database, size: int = POOL) -> None:
    """None was lost: as many units as there are connections are inside at the same time."""
    for in_lines in (False, True):
        inside = asyncio.Barrier(size // 2)

        async def meets(transaction: Transaction, inside: asyncio.Barrier = inside) -> None:
            await transaction.one(PID)
            await inside.wait()

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(
                *(database.write(meets, queue_key=1_000 + at if in_lines else None) for at in range(size // 2))
            )
