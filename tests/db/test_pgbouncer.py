"""Through PgBouncer in transaction mode: many clients share server connections, and leave nothing in them.

The tests of the driver, of tokens and of submissions run through PgBouncer too.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from stoplist.db import Database, Transaction, pools, postgresql, postgresql_transactions
from stoplist.db.opening import open_database
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import Pooled, direct, execute, make_key, make_organization, migrated, opened, pooled, sql, value
from tests.db.unit_fixture import ALL, HEAVY, MAKE, numbers
from tests.fakes import FakeClock
from tests.oauth.partner import pair_of, token_deployment
from tests.services import pgbouncer as poolers
from tests.services.postgresql import PostgresqlServer
from tests.unsubscribes.partner import opt_out_deployment, out

ADD = sql("INSERT INTO things (number, content) VALUES (:number, '')")
COUNT_UP = sql("UPDATE things SET content = CAST(CAST(content AS bigint) + 1 AS text) WHERE number = :number")
PROCESSES = 4
FEEDS = 6
ROUNDS = 10

# The settings of one server process for its session, its prepared statements, and its locks.
LEFT_BEHIND = """
    SELECT json_build_object(
        'set', (SELECT json_object_agg(name, setting) FROM pg_settings WHERE source = 'session'),
        'prepared', (SELECT COUNT(*) FROM pg_prepared_statements WHERE name <> ''),
        'locks', (SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
        'timeouts', (SELECT json_agg(setting ORDER BY name) FROM pg_settings WHERE name LIKE '%\\_timeout'))"""
RUNNING = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep%' AND {}"


@pytest.fixture
def single_server_url(
    postgresql: PostgresqlServer, pgbouncer: poolers.PgBouncer, postgresql_url: str
) -> Iterator[Pooled]:
    """Return the URL of an empty database through a pooler with a single server connection."""
    with poolers.PgBouncer(postgresql.url("postgres"), settings={"default_pool_size": "1"}) as pooler:
        yield pooled(pooler, postgresql_url)


async def left_behind(url: str) -> dict[str, Any]:
    """Return the session state that the next client finds in the single server connection."""
    async with opened(url, pool_size=2) as next_one:
        found: dict[str, Any] = json.loads(await value(next_one, LEFT_BEHIND))
        return found


# Opening


def test_prepared_statements_through_a_pooler_are_refused(pooled_url: Pooled) -> None:
    """Otherwise a statement could be run as another one of the same name. The text says what to set."""
    with pytest.raises(SettingsError, match="STOPLIST_DATABASE_PREPARED=off"):
        asyncio.run(open_database(pooled_url, create=False, prepared=True))


def test_a_missing_prepared_statement_is_a_store_failure(postgresql_url: str) -> None:
    """A pooler may show only in this way. The text says what to set."""

    async def body() -> None:
        async with opened(postgresql_url) as database:
            for state in ("26000", "42P05"):
                with pytest.raises(StoreUnavailable, match="STOPLIST_DATABASE_PREPARED must be off"):
                    await database.one(sql(f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{state}'; END $$"))

    asyncio.run(body())


# Many clients, few server connections


def test_many_clients_share_few_connections_and_lose_nothing(pooled_url: Pooled) -> None:
    """Four processes of 20 connections each on five: units of all kinds, some of which fail, and reads in between."""

    async def run_process(database: Database, turn: int) -> int:
        """Return how many of its units on each feed are stored."""

        async def count_up(transaction: Transaction, feed: int, *, fails: bool) -> None:
            await transaction.run(COUNT_UP, number=feed)
            if fails:
                await transaction.run(ADD, number=feed)  # it exists already

        async def run_unit(feed: int, step: int) -> None:
            fails = step % 5 == turn % 5
            with contextlib.suppress(asyncpg.UniqueViolationError):
                await database.write(
                    lambda transaction: count_up(transaction, feed, fails=fails),
                    queue_key=None if step % 3 == 0 else feed,
                    rows=HEAVY if step % 4 == 0 else 1,
                )
                assert not fails

        for step in range(ROUNDS):
            units = [run_unit(feed, step) for feed in range(FEEDS)]
            reads = [database.all(ALL) for _ in range(FEEDS)]
            writes = [database.write_one(ADD, number=1_000 * (1 + turn) + 10 * step + at) for at in range(3)]
            await asyncio.gather(*units, *reads, *writes)
        return sum(step % 5 != turn % 5 for step in range(ROUNDS))

    async def body() -> None:
        async with contextlib.AsyncExitStack() as stack:
            processes = [await stack.enter_async_context(opened(pooled_url)) for _ in range(PROCESSES)]
            await execute(processes[0], MAKE)
            for feed in range(FEEDS):
                await processes[0].write_one(
                    sql("INSERT INTO things (number, content) VALUES (:number, '0')"), number=feed
                )
            stored = await asyncio.gather(*(run_process(process, turn) for turn, process in enumerate(processes)))
            counted = await processes[0].all(sql("SELECT content FROM things WHERE number < :feeds"), feeds=FEEDS)
            assert [int(row["content"]) for row in counted] == [sum(stored)] * FEEDS
            assert len(await numbers(processes[1])) == FEEDS + PROCESSES * ROUNDS * 3
            servers = await value(
                processes[2],
                # Autovacuum may process the table meanwhile.
                "SELECT COUNT(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND backend_type = 'client backend'",
            )
            assert servers <= poolers.POOL_SIZE

    asyncio.run(body())


# A client leaves nothing to the next one


def test_a_client_leaves_nothing_to_the_next_one(single_server_url: Pooled, clock: FakeClock) -> None:
    """No setting, no statement, no lock: after migrating, tokens, submissions, reads, failures, and a deadlock."""

    async def body() -> None:
        before = await left_behind(single_server_url)
        async with token_deployment(single_server_url, clock) as deployment:
            key = await deployment.new_key()
            pair = await deployment.new_pair(key)
            await deployment.refresh(pair_of(await deployment.refresh(pair.refresh_token)).refresh_token)
            await deployment.refresh(pair.refresh_token)
            with pytest.raises(asyncpg.UndefinedTableError):
                await deployment.database.write(lambda transaction: transaction.one(sql("SELECT * FROM nowhere")))
            with pytest.raises(StoreUnavailable):
                await deployment.database.write(
                    lambda transaction: transaction.one(
                        sql("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'deadlock_detected'; END $$")
                    )
                )
        async with opt_out_deployment(single_server_url, clock) as deployment:
            organization = await deployment.new_organization()
            await organization.submit(*(out(f"p{number}@example.com") for number in range(HEAVY)))
            await organization.submit(out("p0@example.com"), out("new@example.com"))
            assert len(await organization.feed()) == HEAVY + 1
        assert await left_behind(single_server_url) == before
        assert before["prepared"] == before["locks"] == 0

    asyncio.run(body())


def test_timeouts_end_with_their_transaction(single_server_url: Pooled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next client finds the server's own settings."""
    for name, seconds in (("LOCK_TIMEOUT_S", 5.0), ("SERVER_STATEMENT_TIMEOUT_S", 9.0), ("IDLE_TIMEOUT_S", 10.0)):
        monkeypatch.setattr(postgresql_transactions, name, seconds)

    async def timeouts(transaction: Transaction) -> list[str]:
        names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
        rows = [await transaction.one(sql(f"SELECT current_setting('{name}') AS it")) for name in names]
        return [row["it"] for row in rows if row]

    async def body() -> None:
        before = await left_behind(single_server_url)
        async with opened(single_server_url, pool_size=2) as database:
            for queue_key, rows in ((None, 1), (1, 1), (1, HEAVY)):
                assert await database.write(timeouts, queue_key=queue_key, rows=rows) == ["5s", "9s", "10s"]
            await database.under_schema_lock(_assert_long_timeouts)
        assert await left_behind(single_server_url) == before

    async def _assert_long_timeouts(transaction: Transaction) -> None:
        assert await timeouts(transaction) == ["1h"] * 3

    asyncio.run(body())


@pytest.mark.parametrize("steps", [2, 4, 8, 16, "described"])
def test_a_cancelled_caller_releases_the_server_connection(
    single_server_url: Pooled, steps: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds at every step: also between the description and the execution, unseen by the pooler."""
    describe = asyncpg.Connection._get_statement  # type: ignore[attr-defined]

    async def described(*given: Any, **named: Any) -> None:
        await describe(*given, **named)
        raise asyncio.CancelledError

    async def body() -> None:
        async with (
            opened(single_server_url, pool_size=2) as database,
            opened(single_server_url, pool_size=2) as other,
        ):
            reading = asyncio.create_task(database.all(sql("SELECT CAST(:number AS bigint) AS number"), number=1))
            if steps == "described":
                with monkeypatch.context() as patch:
                    patch.setattr(asyncpg.Connection, "_get_statement", described)
                    await asyncio.wait({reading})
                assert reading.cancelled()
            else:
                for _ in range(int(steps)):
                    await asyncio.sleep(0)
                reading.cancel()
                await asyncio.wait({reading})
            assert await value(other, "SELECT CAST(:number AS bigint)", number=2) == 2
            assert await value(database, "SELECT CAST(:number AS bigint)", number=3) == 3

    asyncio.run(body())


def test_cancelling_ends_only_the_own_statement(pooled_url: Pooled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancel request goes through the pooler to the server that runs the statement."""
    # Also the timeout of its next statement: it must suit a slow machine.
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 2.0)

    async def body() -> None:
        async with opened(pooled_url) as short_timeouts:
            monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 60.0)
            async with opened(pooled_url) as long_timeouts:
                sleeps = asyncio.create_task(long_timeouts.one(sql("SELECT 'mine', pg_sleep(4)")))
                answers = await asyncio.gather(
                    *(short_timeouts.one(sql("SELECT pg_sleep(30)")) for _ in range(3)), return_exceptions=True
                )
                assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
                observer = await asyncpg.connect(direct(pooled_url))
                async with asyncio.timeout(60):
                    while await observer.fetchval(RUNNING.format("state = 'active' AND query LIKE '%(30)%'")) > 1:
                        pass
                await observer.close()
                assert await sleeps is not None
            assert await value(short_timeouts, "SELECT 1") == 1

    asyncio.run(body())


def test_direct_and_pooled_clients_work_on_one_database(pooled_url: Pooled, clock: FakeClock) -> None:
    """One directly with prepared statements, one through the pooler: each sees the other's writes at once."""

    async def body() -> None:
        async with migrated(pooled_url) as through, opened(direct(pooled_url)) as directly:
            assert isinstance(directly, postgresql.Postgresql)
            await make_organization(through, clock)
            await make_key(directly, clock)
            assert await value(through, "SELECT COUNT(*) FROM clients") == 1

    asyncio.run(body())
