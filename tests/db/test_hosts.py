"""Which of several hosts a connection goes to: the one that takes writes, before and after another is promoted."""

import asyncio
import contextlib
from urllib.parse import urlsplit

import asyncpg
import pytest

from stoplist.db import host_selection, pools
from stoplist.db.opening import open_database
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import execute, opened, pooled, value
from tests.db import hosts
from tests.db.failing_databases import PATIENCE_S, POOL, adds, has_all_connections, healed
from tests.db.relay import relayed
from tests.db.waiting import ADD, MAKE, QUEUE_KEY, numbers
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services

pytestmark = pytest.mark.usefixtures("patient")


def test_a_standby_is_never_read_from(primary: services.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it is refused at the start; among several hosts the one that takes writes is found, before and after."""
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 4.0)
    url = primary.fresh_database()

    async def body(standby: hosts.Standby) -> None:
        async with opened(standby.both(url), pool_size=POOL) as database:
            await execute(database, MAKE)
            await database.write(adds(1))
            await has_all_connections(database)
            # The primary's host is cut off: nothing answers there, neither to those connected nor to those who come.
            hosts.freeze(primary)
            monkeypatch.setattr(host_selection, "CONNECT_TIMEOUT_S", 8.0)
            try:
                promoting = await asyncpg.connect(standby.url(url))
                assert await promoting.fetchval("SELECT pg_promote()")
                await promoting.close()
                with pytest.raises(StoreUnavailable):
                    await numbers(database)
                # That it does not answer is learnt once, not by everyone who has a connection to it.
                assert await numbers(database) == [1]
                await database.write(adds(2), queue_key=QUEUE_KEY)
                await has_all_connections(database)
            finally:
                hosts.thaw(primary)
            # It is back, and takes itself for the primary: whoever is at the new one stays there.
            assert await numbers(database) == [1, 2]

    with hosts.standby(primary) as standby:
        with pytest.raises(SettingsError, match="is a standby"):
            asyncio.run(open_database(standby.url(url), create=False))
        asyncio.run(body(standby))


def test_a_pooler_that_leads_to_a_standby_is_noticed(primary: services.Cluster) -> None:
    """Connections to the pooler outlive the change: the clock, asked every 30 s, tells, and so does a write."""
    url = primary.fresh_database()

    async def body(standby: hosts.Standby) -> None:
        async with relayed(url) as (relay, by_relay):
            with poolers.pgbouncer(by_relay) as pooler:
                through = pooled(pooler, url)
                async with opened(through, pool_size=POOL) as database:
                    await execute(database, MAKE)
                    for asks in (database.clock_ms, lambda: database.write_one(ADD, number=1)):
                        relay.leads_to(standby.url(url))
                        relay.cut_all()
                        await leads_to_a_standby(through)
                        assert await value(database, "SELECT pg_is_in_recovery()")
                        with pytest.raises(StoreUnavailable):
                            await asks()
                        with pytest.raises(StoreUnavailable):
                            await numbers(database)
                        relay.leads_to(url)
                        relay.cut_all()
                        await healed(database)
                    assert await numbers(database) == []

    with hosts.standby(primary) as standby:
        asyncio.run(body(standby))


async def leads_to_a_standby(url: str) -> None:
    """The pooler has noticed that its connections were cut, and has new ones."""
    is_standby = False
    async with asyncio.timeout(PATIENCE_S):
        while not is_standby:
            with contextlib.suppress(OSError, asyncpg.PostgresError):
                client = await asyncpg.connect(url, statement_cache_size=0)
                try:
                    is_standby = await client.fetchval("SELECT pg_is_in_recovery()")
                finally:
                    await client.close()


def test_connections_that_may_only_read_are_replaced(postgresql: services.Server, postgresql_url: str) -> None:
    """All of them, at the first write that fails so: they would stay as they are for as long as they are used."""
    name = urlsplit(postgresql_url).path[1:]

    async def body() -> None:
        postgresql.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        async with opened(postgresql_url, pool_size=POOL) as database:
            await has_all_connections(database)
            postgresql.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            with pytest.raises(StoreUnavailable, match="25006"):
                await execute(database, MAKE)
            await execute(database, MAKE)
            await asyncio.gather(*(database.write_one(ADD, number=number) for number in range(POOL)))
            await asyncio.gather(
                *(database.write(adds(10 + queue_key), queue_key=queue_key) for queue_key in range(POOL))
            )

    asyncio.run(body())


def test_no_host_is_passed_over(postgresql_url: str) -> None:
    """One that is not there is tried first, and the next one found; with none at all, the start says why."""
    parts = urlsplit(postgresql_url)
    account, _, host = parts.netloc.rpartition("@")

    async def body() -> None:
        nobody = "127.0.0.1:1"
        for order in ((nobody, host), (host, nobody), (nobody, nobody, host)):
            async with opened(parts._replace(netloc=f"{account}@{','.join(order)}").geturl()) as database:
                assert await value(database, "SELECT 1") == 1
        with pytest.raises(SettingsError, match="cannot be reached"):
            await open_database(parts._replace(netloc=f"{account}@{nobody},{nobody}").geturl(), create=False)

    asyncio.run(body())
