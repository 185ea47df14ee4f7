"""PostgreSQL keeps the same promises, and its troubles are told from ours."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from stoplist.db import Database, SchemaChange, Transaction, host_selection, pools, postgresql
from stoplist.db.opening import open_database
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import Pooled, direct, execute, migrated, on_postgresql, opened, pooled, sql, value
from tests.services.postgresql import Server

MAKE = "CREATE TABLE things (number BIGINT PRIMARY KEY, content TEXT)"
ADD = sql("INSERT INTO things (number, content) VALUES (:number, :content)")
CHANGE = sql("UPDATE things SET content = :content WHERE number = :number")
FIND = sql("SELECT content FROM things WHERE number = :number")
ALL = sql("SELECT number FROM things ORDER BY number")
WAITS_FOR_A_LOCK = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
    )"""
TERMINATE = sql("SELECT pg_terminate_backend(pg_backend_pid())")

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture(params=["direct", "pooled"])
def postgresql_url(postgresql_url: str, request: pytest.FixtureRequest) -> str:
    """An empty database; every test runs without a pooler and through one."""
    if request.param == "direct":
        return postgresql_url
    return pooled(request.getfixturevalue("pgbouncer"), postgresql_url)


def name_of(url: str) -> str:
    return urlsplit(url).path[1:]


async def numbers(database: Database) -> list[int]:
    return [row["number"] for row in await database.all(ALL)]


async def add(database: Database, number: object, content: str = "") -> None:
    await database.write_one(ADD, number=number, content=content)


def refusal(url: str) -> str:
    """The words with which this address is refused."""
    with pytest.raises(SettingsError) as refused:
        asyncio.run(open_database(url, create=False, prepared=not isinstance(url, Pooled)))
    return refused.value.text


# Opening


def test_a_server_that_answers_before_it_has_written_is_refused(postgresql: Server, postgresql_url: str) -> None:
    """With `synchronous_commit = off` a crash loses answers that were given; the text says how to set it."""
    postgresql.execute(f'ALTER DATABASE "{name_of(postgresql_url)}" SET synchronous_commit = off')
    assert "synchronous_commit = on" in refusal(postgresql_url)


def test_a_server_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, postgresql_url: str) -> None:
    """The text names both versions."""
    monkeypatch.setattr(host_selection, "MINIMUM_VERSION", 99)
    assert "needs 99 or newer" in refusal(postgresql_url)


def test_a_server_that_cannot_be_reached_is_refused_without_the_password() -> None:
    """The address is a secret; the text names the setting it came from."""
    text = refusal("postgresql://someone:s3cret-w0rd@127.0.0.1:1/stoplist")
    assert "STOPLIST_DATABASE_URL" in text
    assert "s3cret" not in text


def test_a_database_that_does_not_exist_is_refused(postgresql: Server) -> None:
    """Only its own tools make a PostgreSQL database."""
    assert "does not exist" in refusal(postgresql.url("nowhere"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:s3cret#w0rd@127.0.0.1:1/stoplist",
        "postgresql://someone:s3cret/w0rd@127.0.0.1:1/stoplist",
        "postgresql://someone:s3cret?w0rd@127.0.0.1:1/stoplist",
        "postgresql://someone:s3cret@w0rd@127.0.0.1:1/stoplist",
        "postgresql://someone:s3cret[w0rd@127.0.0.1:1/stoplist",
        "postgresql://someone:s3cret\N{CARE OF}w0rd@127.0.0.1:1/stoplist",
        "postgresql://someone@127.0.0.1:1/stoplist?password=s3cret&w0rd",
        "postgresql://someone:s3cret:w0rd@127.0.0.1:1/stoplist",
    ],
)
def test_an_address_that_is_malformed_is_refused_without_the_password(url: str) -> None:
    """A password that should have been percent-encoded lands anywhere in the address, and in the library's words."""
    text = refusal(url)
    assert "STOPLIST_DATABASE_URL" in text
    assert "s3cret" not in text
    assert "w0rd" not in text


# Units of work


@pytest.mark.parametrize("steps", range(0, 12, 3))
def test_an_asker_that_hangs_up_does_not_undo_its_unit(postgresql_url: str, steps: int) -> None:
    """At whichever step it is cancelled the unit is finished, at the latest when the database is closed."""

    async def body() -> list[int]:
        async with opened(postgresql_url) as database:
            await execute(database, MAKE)
            asking = asyncio.create_task(database.write(_added(1)))
            for _ in range(1 + steps):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
        async with opened(postgresql_url) as database:
            return await numbers(database)

    assert asyncio.run(body()) == [1]


def test_an_asker_that_hangs_up_while_a_row_is_locked_does_not_undo_its_unit(postgresql_url: str) -> None:
    """The server is not told to cancel anything: the unit waits for the lock, and commits."""

    async def body() -> Any:
        async with opened(postgresql_url) as database:
            await execute(database, MAKE)
            await add(database, 1)
            other = await asyncpg.connect(direct(postgresql_url))
            transaction = other.transaction()
            await transaction.start()
            await other.execute("UPDATE things SET content = 'theirs' WHERE number = 1")
            asking = asyncio.create_task(database.write(_changed("ours")))
            await _until(other, WAITS_FOR_A_LOCK)
            asking.cancel()
            await asyncio.wait({asking})
            await transaction.commit()
            await other.close()
        async with opened(postgresql_url) as database:
            return await value(database, "SELECT content FROM things")

    assert asyncio.run(body()) == "ours"


def test_closing_finishes_what_waits(postgresql_url: str) -> None:
    """Also the units that still wait for a connection."""

    async def body() -> list[int]:
        async with opened(postgresql_url, pool_size=1) as database:
            await execute(database, MAKE)
            waiting = [asyncio.create_task(database.write(_added(number))) for number in range(8)]
            await asyncio.sleep(0)
            await database.close()
            await asyncio.gather(*waiting)
            with pytest.raises(StoreUnavailable):
                await add(database, 100)
        async with opened(postgresql_url) as database:
            return await numbers(database)

    assert asyncio.run(body()) == list(range(8))


def test_two_units_that_deadlock_both_succeed(postgresql: Server, postgresql_url: str) -> None:
    """PostgreSQL undoes one of the two; it is run again."""
    postgresql.execute(f'ALTER DATABASE "{name_of(postgresql_url)}" SET deadlock_timeout = 20')

    async def body() -> tuple[int, list[str]]:
        async with opened(postgresql_url) as database:
            await execute(database, MAKE)
            await add(database, 1, "-")
            await add(database, 2, "-")
            holds = {1: asyncio.Event(), 2: asyncio.Event()}
            runs = 0

            def unit(first: int, second: int) -> Callable[[Transaction], Awaitable[None]]:
                async def work(transaction: Transaction) -> None:
                    nonlocal runs
                    runs += 1
                    await transaction.run(ADD, number=10 * first, content="")
                    await transaction.run(CHANGE, number=first, content=f"by {first}")
                    holds[first].set()
                    await holds[second].wait()
                    await transaction.run(CHANGE, number=second, content=f"by {first}")

                return work

            await asyncio.gather(database.write(unit(1, 2)), database.write(unit(2, 1)))
            assert await numbers(database) == [1, 2, 10, 20]
            return runs, [row["content"] for row in await database.all(sql("SELECT DISTINCT content FROM things"))]

    runs, contents = asyncio.run(body())
    assert runs >= 3  # the one that was undone may meet the other once more
    assert sorted(contents) in (["", "by 1"], ["", "by 2"])


@on_postgresql
async def test_a_deadlock_that_comes_again_and_again_is_the_store_s_trouble(database: Database) -> None:
    """The tries have an end, and nothing of them is left."""
    await execute(database, MAKE)
    tries = 0

    async def deadlocks(transaction: Transaction) -> None:
        nonlocal tries
        tries += 1
        await transaction.run(ADD, number=1, content="")
        await transaction.one(sql("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = 'deadlock_detected'; END $$"))

    with pytest.raises(StoreUnavailable):
        await database.write(deadlocks)
    assert tries == postgresql.MAX_ATTEMPTS
    assert await numbers(database) == []


@on_postgresql
@pytest.mark.parametrize("how", ["one", "one_large", "all", "write_one"])
async def test_a_single_statement_that_deadlocks_is_made_again(database: Database, how: str) -> None:
    """A read takes locks too, and a migration the same ones in its own order. The tries have an end."""
    await _make_deadlocks(database)
    ask, query = getattr(database, how), sql("SELECT deadlocks(CAST(:times AS BIGINT)) AS tries")
    answer = await ask(query, times=postgresql.MAX_ATTEMPTS - 1)
    assert (answer[0] if how == "all" else answer)["tries"] == postgresql.MAX_ATTEMPTS
    with pytest.raises(StoreUnavailable):
        await ask(query, times=100)
    assert await value(database, "SELECT last_value FROM tries") == 2 * postgresql.MAX_ATTEMPTS


@on_postgresql
async def test_a_migration_that_deadlocks_is_made_again(database: Database) -> None:
    """Servers that work meanwhile take the same locks; whoever migrates hears nothing of it, and nothing is doubled."""
    await _make_deadlocks(database)

    async def change(change: SchemaChange) -> None:
        await change.script(MAKE)
        await change.script("SELECT deadlocks(2)")
        await change.run(ADD, number=1, content="")

    await database.under_schema_lock(change)
    assert await numbers(database) == [1]


async def _make_deadlocks(database: Database) -> None:
    """deadlocks(N) says that it met one, N times; then it answers."""
    await execute(database, "CREATE SEQUENCE tries")
    await execute(
        database,
        """CREATE FUNCTION deadlocks(times BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('tries') <= times THEN RAISE EXCEPTION 'again' USING ERRCODE = 'deadlock_detected'; END IF;
             RETURN currval('tries');
           END $$""",
    )


@on_postgresql
async def test_a_duplicate_is_not_run_again_and_is_no_trouble_of_the_store(database: Database) -> None:
    """It would fail as often as it is tried."""
    await execute(database, MAKE)
    runs = 0

    async def twice(transaction: Transaction) -> None:
        nonlocal runs
        runs += 1
        for _ in range(2):
            await transaction.run(ADD, number=1, content="")

    with pytest.raises(asyncpg.UniqueViolationError):
        await database.write(twice)
    assert runs == 1
    assert await numbers(database) == []


# The store's own trouble


def _ways() -> list[Any]:
    """Every way in which a statement reaches the server."""

    async def reads_one(database: Database, query: Any) -> Any:
        return await database.one(query)

    async def reads_all(database: Database, query: Any) -> Any:
        return await database.all(query)

    async def writes_one(database: Database, query: Any) -> Any:
        return await database.write_one(query)

    async def writes(database: Database, query: Any) -> Any:
        return await database.write(lambda transaction: transaction.one(query))

    return [reads_one, reads_all, writes_one, writes]


@on_postgresql
async def test_a_connection_that_is_cut_is_the_store_s_trouble_and_is_replaced(database: Database) -> None:
    """Whatever it was doing, which may have been the commit itself; the next statement finds a new connection."""
    for way in _ways():
        with pytest.raises(StoreUnavailable) as failure:
            await way(database, TERMINATE)
        assert failure.value.is_uncertain
        assert await value(database, "SELECT 1") == 1


@on_postgresql
async def test_a_statement_that_takes_too_long_is_the_store_s_trouble(database: Database) -> None:
    """`statement_timeout` of the server, here set by hand, ends it with a state of class 57."""

    async def slow(transaction: Transaction) -> None:
        await transaction.one(sql("SELECT set_config('statement_timeout', '10', true)"))
        await transaction.one(sql("SELECT pg_sleep(30)"))

    with pytest.raises(StoreUnavailable, match="57014") as failure:
        await database.write(slow)
    assert not failure.value.is_uncertain
    assert await value(database, "SELECT 1") == 1


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch, postgresql_url: str) -> None:
    """Our own patience has an end too, in case the server has none."""
    # Of the next statement, too: it must do for a machine that stalls.
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 3.0)

    async def body() -> None:
        async with opened(postgresql_url) as database:
            with pytest.raises(StoreUnavailable):
                await database.one(sql("SELECT pg_sleep(30)"))
            assert await value(database, "SELECT 1") == 1

    asyncio.run(body())


def test_a_pool_that_is_used_up_is_the_store_s_trouble(monkeypatch: pytest.MonkeyPatch, postgresql_url: str) -> None:
    """Whoever finds no connection in time is told to come back; the one who has it is not disturbed."""

    async def body() -> None:
        async with opened(postgresql_url, pool_size=1) as database:
            await execute(database, MAKE)
            begun, go_on = asyncio.Event(), asyncio.Event()

            async def slow(transaction: Transaction) -> None:
                await transaction.run(ADD, number=1, content="")
                begun.set()
                await go_on.wait()

            slowly = asyncio.create_task(database.write(slow))
            await begun.wait()
            with monkeypatch.context() as patch:
                patch.setattr(pools, "ACQUIRE_TIMEOUT_S", 0.1)
                with pytest.raises(StoreUnavailable):
                    await database.one(ALL)
                with pytest.raises(StoreUnavailable) as failure:
                    await add(database, 2)
                assert not failure.value.is_uncertain
            go_on.set()
            await slowly
            assert await numbers(database) == [1]

    asyncio.run(body())


def test_a_database_that_is_gone_is_the_store_s_trouble(
    postgresql: Server, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while an operator puts a restored one in its place: 503, not a defect."""
    # A pooler lets us wait for what it hopes to see again.
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 0.5)

    async def body() -> None:
        async with opened(postgresql_url) as database:
            monkeypatch.setattr(host_selection, "CONNECT_TIMEOUT_S", 0.5)
            postgresql.drop_database(direct(postgresql_url))
            for way in _ways():
                for _ in range(2):
                    with pytest.raises(StoreUnavailable):
                        await way(database, sql("SELECT 1"))

    asyncio.run(body())


def test_a_server_that_has_become_careless_is_the_store_s_trouble(postgresql: Server, postgresql_url: str) -> None:
    """Each new connection of the pool is asked, not the first alone; a request then meets a 503."""

    async def body() -> None:
        async with opened(postgresql_url) as database:
            postgresql.execute(f'ALTER DATABASE "{name_of(postgresql_url)}" SET synchronous_commit = off')
            with pytest.raises(StoreUnavailable):
                await database.one(TERMINATE)
            with pytest.raises(StoreUnavailable):
                await database.one(sql("SELECT 1"))

    asyncio.run(body())


@on_postgresql
async def test_a_value_of_the_wrong_type_is_not_taken_for_the_store_s_trouble(database: Database) -> None:
    """A defect of ours is a 500 that somebody looks into, not a 503 that everybody waits out."""
    await execute(database, MAKE)
    with pytest.raises(asyncpg.DataError):
        await database.one(FIND, number="one")
    with pytest.raises(asyncpg.DataError):
        await add(database, "one")


@on_postgresql
async def test_a_wrong_statement_is_not_taken_for_the_store_s_trouble(database: Database) -> None:
    """Nor a table that does not exist."""
    for way in _ways():
        with pytest.raises(asyncpg.UndefinedTableError):
            await way(database, sql("SELECT * FROM nowhere"))


# Settings


def test_without_prepared_statements_nothing_is_prepared(postgresql_url: str) -> None:
    """Behind a transaction pooler a named statement would meet another server process."""

    async def prepared(is_on: bool) -> int:
        async with migrated(postgresql_url, prepared=is_on, pool_size=1) as database:
            await execute(database, "CREATE TABLE IF NOT EXISTS things (number BIGINT PRIMARY KEY, content TEXT)")
            await add(database, int(is_on))
            await numbers(database)
            await database.write(_added(10 + is_on))
            count: int = await value(database, "SELECT COUNT(*) FROM pg_prepared_statements WHERE name <> ''")
            return count

    assert asyncio.run(prepared(False)) == 0
    if not isinstance(postgresql_url, Pooled):
        assert asyncio.run(prepared(True)) > 0


@on_postgresql
async def test_the_database_tells_its_own_time(database: Database) -> None:
    """Section D1, Clock: in milliseconds since 1970 UTC, wherever the server believes to be."""
    before_ms = await database.clock_ms()
    own_ms = await value(database, "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")
    after_ms = await database.clock_ms()
    assert before_ms is not None
    assert after_ms is not None
    assert before_ms <= own_ms <= after_ms


def _added(number: int) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        return await transaction.run(ADD, number=number, content="")

    return work


def _changed(content: str) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        return await transaction.run(CHANGE, number=1, content=content)

    return work


async def _until(connection: Any, query: str) -> None:
    async with asyncio.timeout(60):
        while not await connection.fetchval(query):
            pass


def test_a_certificate_that_is_not_trusted_is_told_as_that() -> None:
    """And not as a malformed address, as which the library's error also passes."""
    told = host_selection.failure_reason(ssl.SSLCertVerificationError(1, "certificate verify failed"))
    assert told.startswith("TLS failed (")
    assert "sslrootcert" in told
