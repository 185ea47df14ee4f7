"""The PostgreSQL driver: startup checks, retries, and store failures told apart from our defects."""

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
from tests.services.postgresql import PostgresqlServer

MAKE = "CREATE TABLE things (number BIGINT PRIMARY KEY, content TEXT)"
ADD = sql("INSERT INTO things (number, content) VALUES (:number, :content)")
CHANGE = sql("UPDATE things SET content = :content WHERE number = :number")
FIND = sql("SELECT content FROM things WHERE number = :number")
ALL = sql("SELECT number FROM things ORDER BY number")
WAITS_FOR_A_LOCK = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
    )"""
NOBODY_ELSE_IS_CONNECTED = """
    SELECT NOT EXISTS (
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    )"""
TERMINATE = sql("SELECT pg_terminate_backend(pg_backend_pid())")

pytestmark = pytest.mark.interpreter


@pytest.fixture(params=["direct", "pooled"])
def postgresql_url(postgresql_url: str, request: pytest.FixtureRequest) -> str:
    """Return an empty database; every test runs without and through a pooler."""
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
    """Return the text with which this URL is refused."""
    with pytest.raises(SettingsError) as refused:
        asyncio.run(open_database(url, create=False, prepared=not isinstance(url, Pooled)))
    return refused.value.text


# Opening


def test_asynchronous_commit_is_refused(postgresql: PostgresqlServer, postgresql_url: str) -> None:
    """With `synchronous_commit = off` a crash loses confirmed writes; the text says how to set it."""
    postgresql.execute(f'ALTER DATABASE "{name_of(postgresql_url)}" SET synchronous_commit = off')
    assert "synchronous_commit = on" in refusal(postgresql_url)


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch, postgresql_url: str) -> None:
    """The text names both versions."""
    monkeypatch.setattr(host_selection, "MINIMUM_VERSION", 99)
    assert "needs 99 or newer" in refusal(postgresql_url)


def test_an_unreachable_server_is_refused_without_the_password() -> None:
    """The URL is a secret; the text names the setting it came from."""
    text = refusal("postgresql://someone:s3cret-w0rd@127.0.0.1:1/stoplist")
    assert "STOPLIST_DATABASE_URL" in text
    assert "s3cret" not in text


def test_a_database_that_does_not_exist_is_refused(postgresql: PostgresqlServer) -> None:
    """Only PostgreSQL's own tools create a database."""
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
def test_a_malformed_url_is_refused_without_the_password(url: str) -> None:
    """A password that is not percent-encoded may be anywhere in the URL, and in the library's message."""
    text = refusal(url)
    assert "STOPLIST_DATABASE_URL" in text
    assert "s3cret" not in text
    assert "w0rd" not in text


# Units of work


@pytest.mark.parametrize("steps", range(0, 12, 3))
def test_a_cancelled_caller_does_not_undo_its_unit(postgresql_url: str, steps: int) -> None:
    """The unit is finished, at whatever step it is cancelled, at the latest when the database is closed."""

    async def body() -> list[int]:
        async with opened(postgresql_url) as database:
            await execute(database, MAKE)
            asking = asyncio.create_task(database.write(_adding_unit(1)))
            for _ in range(1 + steps):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
        async with opened(postgresql_url) as database:
            return await numbers(database)

    assert asyncio.run(body()) == [1]


def test_a_caller_cancelled_at_a_row_lock_does_not_undo_its_unit(postgresql_url: str) -> None:
    """Nothing is cancelled on the server: the unit waits for the lock, and commits."""

    async def body() -> Any:
        async with opened(postgresql_url) as database:
            await execute(database, MAKE)
            await add(database, 1)
            other = await asyncpg.connect(direct(postgresql_url))
            transaction = other.transaction()
            await transaction.start()
            await other.execute("UPDATE things SET content = 'theirs' WHERE number = 1")
            asking = asyncio.create_task(database.write(_updating_unit("ours")))
            await _wait_until(other, WAITS_FOR_A_LOCK)
            asking.cancel()
            await asyncio.wait({asking})
            await transaction.commit()
            await other.close()
        async with opened(postgresql_url) as database:
            return await value(database, "SELECT content FROM things")

    assert asyncio.run(body()) == "ours"


def test_closing_finishes_waiting_units(postgresql_url: str) -> None:
    """This includes units that still wait for a connection."""

    async def body() -> list[int]:
        async with opened(postgresql_url, pool_size=1) as database:
            await execute(database, MAKE)
            waiting = [asyncio.create_task(database.write(_adding_unit(number))) for number in range(8)]
            await asyncio.sleep(0)
            await database.close()
            await asyncio.gather(*waiting)
            with pytest.raises(StoreUnavailable):
                await add(database, 100)
        async with opened(postgresql_url) as database:
            return await numbers(database)

    assert asyncio.run(body()) == list(range(8))


def test_two_units_that_deadlock_both_succeed(postgresql: PostgresqlServer, postgresql_url: str) -> None:
    """PostgreSQL rolls one of them back; it is run again."""
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
    assert runs >= 3  # the one rolled back may meet the other again
    assert sorted(contents) in (["", "by 1"], ["", "by 2"])


@on_postgresql
async def test_a_connection_left_in_a_transaction_is_not_lent_again(database: Database) -> None:
    """The next caller would write into that transaction."""
    assert isinstance(database, postgresql.Postgresql)
    async with database._small_pool.acquire() as connection:
        await connection.execute("BEGIN")
    async with database._small_pool.acquire() as connection:
        assert not connection.is_in_transaction()


@on_postgresql
async def test_repeated_deadlocks_are_a_store_failure(database: Database) -> None:
    """The attempts are limited, and nothing of them remains."""
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
async def test_a_single_statement_is_run_again_after_a_deadlock(database: Database, how: str) -> None:
    """A read takes locks too, and a migration takes them in its own order. The attempts are limited."""
    await _create_deadlock_function(database)
    ask, query = getattr(database, how), sql("SELECT deadlocks(CAST(:times AS BIGINT)) AS tries")
    answer = await ask(query, times=postgresql.MAX_ATTEMPTS - 1)
    assert (answer[0] if how == "all" else answer)["tries"] == postgresql.MAX_ATTEMPTS
    with pytest.raises(StoreUnavailable):
        await ask(query, times=100)
    assert await value(database, "SELECT last_value FROM tries") == 2 * postgresql.MAX_ATTEMPTS


@on_postgresql
async def test_a_migration_is_run_again_after_a_deadlock(database: Database) -> None:
    """Servers at work take the same locks. Nothing is done twice."""
    await _create_deadlock_function(database)

    async def change(change: SchemaChange) -> None:
        await change.script(MAKE)
        await change.script("SELECT deadlocks(2)")
        await change.run(ADD, number=1, content="")

    await database.under_schema_lock(change)
    assert await numbers(database) == [1]


async def _create_deadlock_function(database: Database) -> None:
    """Create deadlocks(N), which fails with a deadlock N times and then answers."""
    await execute(database, "CREATE SEQUENCE tries")
    await execute(
        database,
        """CREATE FUNCTION deadlocks(times BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('tries') <= times THEN RAISE EXCEPTION 'again' USING ERRCODE = 'deadlock_detected'; END IF;
             RETURN currval('tries');
           END $$""",
    )


@on_postgresql
async def test_a_duplicate_is_not_retried_nor_a_store_failure(database: Database) -> None:
    """It would fail each time."""
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


# Store failures


def _ways() -> list[Any]:
    """Return every way in which a statement reaches the server."""

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
async def test_a_cut_connection_is_a_store_failure_and_is_replaced(database: Database) -> None:
    """Any statement may be cut, even the commit itself. The next statement gets a new connection."""
    for way in _ways():
        with pytest.raises(StoreUnavailable) as failure:
            await way(database, TERMINATE)
        assert failure.value.is_uncertain
        assert await value(database, "SELECT 1") == 1


@on_postgresql
async def test_a_statement_timeout_is_a_store_failure(database: Database) -> None:
    """The server's `statement_timeout`, here set by hand, ends it with a state of class 57."""

    async def slow(transaction: Transaction) -> None:
        await transaction.one(sql("SELECT set_config('statement_timeout', '10', true)"))
        await transaction.one(sql("SELECT pg_sleep(30)"))

    with pytest.raises(StoreUnavailable, match="57014") as failure:
        await database.write(slow)
    assert not failure.value.is_uncertain
    assert await value(database, "SELECT 1") == 1


def test_a_server_that_does_not_answer_times_out(monkeypatch: pytest.MonkeyPatch, postgresql_url: str) -> None:
    """The client has a timeout too, in case the server has none."""
    # Also the timeout of the next statement: it must suit a slow machine.
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 3.0)

    async def body() -> None:
        async with opened(postgresql_url) as database:
            with pytest.raises(StoreUnavailable):
                await database.one(sql("SELECT pg_sleep(30)"))
            assert await value(database, "SELECT 1") == 1

    asyncio.run(body())


def test_unused_connections_are_closed_after_a_while(
    monkeypatch: pytest.MonkeyPatch, empty_postgresql_url: str
) -> None:
    """The server gets the memory of its processes back; the next statement opens a connection anew."""
    monkeypatch.setattr(pools, "IDLE_S", 0.05)

    async def body() -> None:
        async with opened(empty_postgresql_url) as database:
            await value(database, "SELECT 1")
            watcher = await asyncpg.connect(empty_postgresql_url)
            await _wait_until(watcher, NOBODY_ELSE_IS_CONNECTED)
            assert await value(database, "SELECT 1") == 1
            await watcher.close()

    asyncio.run(body())


def test_an_exhausted_pool_is_a_store_failure(monkeypatch: pytest.MonkeyPatch, postgresql_url: str) -> None:
    """A caller that gets no connection in time is told to try again; the holder of the connection is unaffected."""

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


def test_a_missing_database_is_a_store_failure(
    postgresql: PostgresqlServer, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is missing while an operator puts a restored one in its place: the answer is 503, not a defect."""
    # A pooler makes clients wait for a database that it expects back.
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


def test_a_server_that_stops_committing_durably_is_a_store_failure(
    postgresql: PostgresqlServer, postgresql_url: str
) -> None:
    """Each new connection of the pool is checked, not only the first; a request then gets a 503."""

    async def body() -> None:
        async with opened(postgresql_url) as database:
            postgresql.execute(f'ALTER DATABASE "{name_of(postgresql_url)}" SET synchronous_commit = off')
            with pytest.raises(StoreUnavailable):
                await database.one(TERMINATE)
            with pytest.raises(StoreUnavailable):
                await database.one(sql("SELECT 1"))

    asyncio.run(body())


@on_postgresql
async def test_a_value_of_the_wrong_type_is_a_defect(database: Database) -> None:
    """A 500 that somebody investigates, not a 503 that everybody waits out."""
    await execute(database, MAKE)
    with pytest.raises(asyncpg.DataError):
        await database.one(FIND, number="one")
    with pytest.raises(asyncpg.DataError):
        await add(database, "one")


@on_postgresql
async def test_a_wrong_statement_is_a_defect(database: Database) -> None:
    """A table that does not exist is one too."""
    for way in _ways():
        with pytest.raises(asyncpg.UndefinedTableError):
            await way(database, sql("SELECT * FROM nowhere"))


# Settings


def test_without_prepared_statements_nothing_is_prepared(postgresql_url: str) -> None:
    """Behind a transaction pooler a named statement could reach another server process."""

    async def prepared(is_on: bool) -> int:
        async with migrated(postgresql_url, prepared=is_on, pool_size=1) as database:
            await execute(database, "CREATE TABLE IF NOT EXISTS things (number BIGINT PRIMARY KEY, content TEXT)")
            await add(database, int(is_on))
            await numbers(database)
            await database.write(_adding_unit(10 + is_on))
            count: int = await value(database, "SELECT COUNT(*) FROM pg_prepared_statements WHERE name <> ''")
            return count

    assert asyncio.run(prepared(False)) == 0
    if not isinstance(postgresql_url, Pooled):
        assert asyncio.run(prepared(True)) > 0


@on_postgresql
async def test_the_database_has_its_own_clock(database: Database) -> None:
    """Section D1, Clock: in milliseconds since 1970 UTC, whatever the server's time zone."""
    before_ms = await database.clock_ms()
    own_ms = await value(database, "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")
    after_ms = await database.clock_ms()
    assert before_ms is not None
    assert after_ms is not None
    assert before_ms <= own_ms <= after_ms


def _adding_unit(number: int) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        return await transaction.run(ADD, number=number, content="")

    return work


def _updating_unit(content: str) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        return await transaction.run(CHANGE, number=1, content=content)

    return work


async def _wait_until(connection: Any, query: str) -> None:
    async with asyncio.timeout(60):
        while not await connection.fetchval(query):
            pass


def test_an_untrusted_certificate_is_reported_as_such() -> None:
    """It is not called a malformed URL, although the library's error is a ValueError too."""
    reason = host_selection.failure_reason(ssl.SSLCertVerificationError(1, "certificate verify failed"))
    assert reason.startswith("TLS failed (")
    assert "sslrootcert" in reason
