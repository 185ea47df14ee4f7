"""The temporary PgBouncer shares connections as an operator's would, and so exposes clients that keep session state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from tests.services import pgbouncer as services
from tests.services.postgresql import PostgresqlServer

# The interpreter does not matter to the servers: once is enough.
pytestmark = pytest.mark.slow

CLIENTS = 4 * services.POOL_SIZE


@asynccontextmanager
async def connections(url: str, count: int) -> AsyncIterator[list[asyncpg.Connection]]:
    """Open that many clients at once, without prepared statements."""
    async with AsyncExitStack() as stack:
        opened = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(count)]
        for connection in opened:
            stack.push_async_callback(connection.close)
        yield opened


def test_many_clients_share_few_connections(
    pgbouncer: services.PgBouncer, postgresql: PostgresqlServer, postgresql_url: str
) -> None:
    """Four clients per database connection: each has one for the duration of a transaction."""
    url = pgbouncer.url(postgresql_url)

    async def backend(connection: asyncpg.Connection, all_at_once: asyncio.Barrier) -> int:
        async with connection.transaction():
            pid = int(await connection.fetchval("SELECT pg_backend_pid()"))
            await all_at_once.wait()
            return pid

    async def backends() -> list[int]:
        async with connections(url, CLIENTS) as clients:
            all_at_once = asyncio.Barrier(services.POOL_SIZE)
            return await asyncio.gather(*(backend(client, all_at_once) for client in clients))

    assert len(set(asyncio.run(backends()))) == services.POOL_SIZE


def test_state_of_a_session_is_found_by_another_client(
    pgbouncer: services.PgBouncer, postgresql: PostgresqlServer, postgresql_url: str
) -> None:
    """This exposes clients that set something for a session instead of a transaction."""
    url = pgbouncer.url(postgresql_url)

    async def leak(statement: str) -> str:
        async with connections(url, 2) as (one, other):
            async with one.transaction():
                await one.execute(statement)
            async with other.transaction():
                return str(await other.fetchval("SHOW lock_timeout"))

    assert asyncio.run(leak("SET LOCAL lock_timeout = '7s'")) == "0"
    assert asyncio.run(leak("SET lock_timeout = '7s'")) == "7s"


def test_a_prepared_statement_is_lost_between_transactions(
    pgbouncer: services.PgBouncer, postgresql: PostgresqlServer, postgresql_url: str
) -> None:
    """This exposes clients that keep statements prepared from one transaction to the next."""
    url = pgbouncer.url(postgresql_url)

    async def prepare_and_move() -> None:
        async with connections(url, 1) as (other,):
            one = await asyncpg.connect(url)
            try:
                await one.fetchval("SELECT $1::int", 1)
                async with other.transaction():  # It occupies the connection on which the statement was prepared.
                    await one.fetchval("SELECT $1::int", 1)
            finally:
                await one.close()

    with pytest.raises(asyncpg.InvalidSQLStatementNameError):
        asyncio.run(prepare_and_move())


def test_a_wrong_password_is_refused(pgbouncer: services.PgBouncer, postgresql_url: str) -> None:
    """This exposes a product that loses the password of its URL."""
    user, _, where = pgbouncer.url(postgresql_url).removeprefix("postgresql://").partition("@")
    wrong = f"postgresql://{user.partition(':')[0]}:wrong@{where}"
    with pytest.raises(asyncpg.PostgresError, match="password authentication failed"):
        PostgresqlServer(wrong).value("SELECT 1")


def test_it_restarts_on_the_same_port_after_a_kill(postgresql: PostgresqlServer, postgresql_url: str) -> None:
    with services.PgBouncer(postgresql.url("postgres")) as own:
        own.kill()
        with pytest.raises(OSError, match=r"Connect call failed|refused"):
            asyncio.run(asyncpg.connect(own.url(postgresql_url)))
        own.start()

        async def value() -> int:
            async with connections(own.url(postgresql_url), 1) as (one,):
                return int(await one.fetchval("SELECT 1"))

        assert asyncio.run(value()) == 1
        own.stop()
        assert own.folder.exists()
    assert not own.folder.exists()
