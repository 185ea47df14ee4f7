"""The throw-away PgBouncer shares connections as an operator's would, and so finds out who keeps state in one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from tests.services import pgbouncer as services
from tests.services.postgresql import Server

# Which interpreter asks is all the same to the servers: once is enough.
pytestmark = pytest.mark.slow

CLIENTS = 4 * services.POOL_SIZE


@asynccontextmanager
async def connections(url: str, count: int) -> AsyncIterator[list[asyncpg.Connection]]:
    """That many clients at once, which keep no statements prepared."""
    async with AsyncExitStack() as stack:
        opened = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(count)]
        for connection in opened:
            stack.push_async_callback(connection.close)
        yield opened


def test_many_clients_share_few_connections(
    pgbouncer: services.PgBouncer, postgresql: Server, postgresql_url: str
) -> None:
    """Four clients to each connection of the database: each has one for the length of a transaction."""
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
    pgbouncer: services.PgBouncer, postgresql: Server, postgresql_url: str
) -> None:
    """Who sets something for a session, and not for its transaction, is found out."""
    url = pgbouncer.url(postgresql_url)

    async def leak(statement: str) -> str:
        async with connections(url, 2) as (one, other):
            async with one.transaction():
                await one.execute(statement)
            async with other.transaction():
                return str(await other.fetchval("SHOW lock_timeout"))

    assert asyncio.run(leak("SET LOCAL lock_timeout = '7s'")) == "0"
    assert asyncio.run(leak("SET lock_timeout = '7s'")) == "7s"


def test_a_statement_that_stays_prepared_is_not_found_again(
    pgbouncer: services.PgBouncer, postgresql: Server, postgresql_url: str
) -> None:
    """Who keeps statements prepared from one transaction to the next is found out."""
    url = pgbouncer.url(postgresql_url)

    async def prepare_and_move() -> None:
        async with connections(url, 1) as (other,):
            one = await asyncpg.connect(url)
            try:
                await one.fetchval("SELECT $1::int", 1)
                async with other.transaction():  # It takes the connection on which the statement was prepared.
                    await one.fetchval("SELECT $1::int", 1)
            finally:
                await one.close()

    with pytest.raises(asyncpg.InvalidSQLStatementNameError):
        asyncio.run(prepare_and_move())


def test_a_wrong_password_is_refused(pgbouncer: services.PgBouncer, postgresql_url: str) -> None:
    """A product that loses the password of its URL on the way is found out."""
    user, _, where = pgbouncer.url(postgresql_url).removeprefix("postgresql://").partition("@")
    wrong = f"postgresql://{user.partition(':')[0]}:wrong@{where}"
    with pytest.raises(asyncpg.PostgresError, match="password authentication failed"):
        Server(wrong).value("SELECT 1")


def test_it_may_be_killed_and_comes_back_on_the_same_port(postgresql: Server, postgresql_url: str) -> None:
    """A test may take it away for a while."""
    with services.pgbouncer(postgresql.url("postgres")) as own:
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
