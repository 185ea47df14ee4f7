"""A connection goes to the host that takes writes, before and after a promotion."""

import asyncio
import contextlib
from urllib.parse import urlsplit

import asyncpg
import pytest

from stoplist.db import host_selection, pools
from stoplist.db.opening import open_database
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import execute, opened, pooled, value
from tests.constants import PATIENCE_S
from tests.db import hosts
from tests.db.failing_databases import POOL, add_unit, assert_all_connections_usable, wait_until_recovered
from tests.db.unit_fixture import ADD, MAKE, QUEUE_KEY, numbers
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services
from tests.services.proxy import Proxy


@pytest.mark.slow
def test_a_standby_is_never_read_from(
    own_postgresql: services.Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A standby alone is refused at startup; among several hosts the primary is found, before and after a promotion."""
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 4.0)
    url = own_postgresql.fresh_database()

    async def body(standby: hosts.Standby) -> None:
        async with opened(standby.url_of_both(url), pool_size=POOL) as database:
            await execute(database, MAKE)
            await database.write(add_unit(1))
            await assert_all_connections_usable(database)
            # The primary's host is cut off: nothing answers, neither on open connections nor on new ones.
            own_postgresql.freeze()
            monkeypatch.setattr(host_selection, "CONNECT_TIMEOUT_S", 8.0)
            try:
                promoting = await asyncpg.connect(standby.url_of(url))
                assert await promoting.fetchval("SELECT pg_promote()")
                await promoting.close()
                with pytest.raises(StoreUnavailable):
                    await numbers(database)
                # Only one unit has to notice this, not each that has a connection.
                assert await numbers(database) == [1]
                await database.write(add_unit(2), queue_key=QUEUE_KEY)
                await assert_all_connections_usable(database)
            finally:
                own_postgresql.thaw()
            # It is back and believes it is the primary, but connections stay with the new one.
            assert await numbers(database) == [1, 2]

    with hosts.Standby(own_postgresql) as standby:
        with pytest.raises(SettingsError, match=r"is a standby.*Name the primary in STOPLIST_FEEDS_URL"):
            asyncio.run(open_database(standby.url_of(url), create=False, setting="STOPLIST_FEEDS_URL"))
        (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert "Name the primary in STOPLIST_FEEDS_URL" in line.fields["why"]  # type: ignore[attr-defined]
        asyncio.run(body(standby))


def test_a_pooler_that_leads_to_a_standby_is_noticed(own_postgresql: services.Cluster) -> None:
    """Connections to the pooler survive the change, so the clock (queried every 30 s) and any write reveal it."""
    url = own_postgresql.fresh_database()

    async def body(standby: hosts.Standby) -> None:
        with Proxy(url) as between, poolers.PgBouncer(between.url(url)) as pooler:
            through = pooled(pooler, url)
            async with opened(through, pool_size=POOL) as database:
                await execute(database, MAKE)
                for asks in (database.clock_ms, lambda: database.write_one(ADD, number=1)):
                    between.redirect(standby.url_of(url))
                    await reaches_standby(through)
                    assert await value(database, "SELECT pg_is_in_recovery()")
                    with pytest.raises(StoreUnavailable):
                        await asks()
                    with pytest.raises(StoreUnavailable):
                        await numbers(database)
                    between.redirect(url)
                    await wait_until_recovered(database)
                assert await numbers(database) == []

    with hosts.Standby(own_postgresql) as standby:
        asyncio.run(body(standby))


async def reaches_standby(url: str) -> None:
    """Return whether the pooler has replaced its cut connections and reaches a standby."""
    is_standby = False
    async with asyncio.timeout(PATIENCE_S):
        while not is_standby:
            with contextlib.suppress(OSError, asyncpg.PostgresError):
                client = await asyncpg.connect(url, statement_cache_size=0)
                try:
                    is_standby = await client.fetchval("SELECT pg_is_in_recovery()")
                finally:
                    await client.close()


def test_read_only_connections_are_replaced(postgresql: services.PostgresqlServer, postgresql_url: str) -> None:
    """All of them, at the first write that fails so; they would otherwise stay read-only."""
    name = urlsplit(postgresql_url).path[1:]

    async def body() -> None:
        postgresql.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        async with opened(postgresql_url, pool_size=POOL) as database:
            await assert_all_connections_usable(database)
            postgresql.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            with pytest.raises(StoreUnavailable, match="25006"):
                await execute(database, MAKE)
            await execute(database, MAKE)
            await asyncio.gather(*(database.write_one(ADD, number=number) for number in range(POOL)))
            await asyncio.gather(
                *(database.write(add_unit(10 + queue_key), queue_key=queue_key) for queue_key in range(POOL))
            )

    asyncio.run(body())


def test_every_host_is_tried(postgresql_url: str) -> None:
    """A missing host is tried first, and the next one is found. With none at all, the startup error says why."""
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
