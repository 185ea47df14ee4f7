"""Real failures of PostgreSQL: callers are told soon, nothing is half stored, and everything recovers by itself.

Source: docs/interface.md sections D1 and D4.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from stoplist.db import Database, Transaction, pools, postgresql_transactions
from stoplist.db.opening import open_database
from stoplist.db.postgresql_errors import KIND_BY_STATE, Kind, Phase, kind_of
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import execute, on_postgresql, opened, pooled, sql, value
from tests.constants import PATIENCE_S
from tests.db.failing_databases import (
    MAX_WAITING,
    PID,
    POOL,
    Work,
    add_unit,
    assert_all_connections_usable,
    wait_until_recovered,
)
from tests.db.unit_fixture import ADD, ALL, CHANGE, HEAVY, MAKE, QUEUE_KEY, another_process, let_units_queue, numbers
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services
from tests.services.managed_program import wait_until
from tests.services.proxy import Proxy

ShortTimeouts = Callable[[], AbstractContextManager[None]]
CALLERS = 3_000

PAIR = sql("INSERT INTO things (number, content) VALUES (:number, :content)")
PAIRS = sql("SELECT content, COUNT(*) AS count FROM things GROUP BY content")
TERMINATE_OTHERS = """
    SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_COMMIT = "SELECT pg_logical_emit_message(true, 'a test', 'writes, and so commits')"
_WAITS_FOR_STANDBY = "SELECT COUNT(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
# SQLSTATEs of a full disk, no memory, no lock table and so on; and of a beginning shutdown.
STATES = ("53100", "53200", "53400", "57014", "57P03", "58030", "55P03", "25006")


def every_way(database: Database, number: int, queue_key: int = QUEUE_KEY) -> Awaitable[Any]:
    """Return one of the ways to use the database, in turn by number."""
    ways: list[Callable[[], Awaitable[Any]]] = [
        lambda: database.one(ALL),
        lambda: database.all(ALL),
        lambda: database.one_large(ALL),
        lambda: database.write_one(ADD, number=number),
        lambda: database.write(add_unit(number)),
        lambda: database.write(add_unit(number), queue_key=queue_key),
        lambda: database.write(add_unit(number), queue_key=queue_key, rows=HEAVY),
        database.clock_ms,
    ]
    return ways[number % len(ways)]()


# The server is frozen


@pytest.mark.parametrize("way", ["direct", "pooled"])
def test_a_frozen_server_refuses_thousands_soon_and_recovers(
    cluster: services.Cluster, short_timeouts: ShortTimeouts, way: str
) -> None:
    """Most are refused at once, because so many wait already; the others when their time is up."""

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            await assert_all_connections_usable(database)
            cluster.freeze()
            try:
                with short_timeouts():
                    callers = [asyncio.ensure_future(every_way(database, number)) for number in range(CALLERS)]
                    await let_units_queue()
                    refused = [one for one in callers if one.done()]
                    # Two pools, the capacity for heavy reads, and one queue each for small and heavy units.
                    assert len(refused) >= CALLERS - 5 * MAX_WAITING - POOL
                    async with asyncio.timeout(PATIENCE_S):
                        answers = await asyncio.gather(*callers, return_exceptions=True)
                    assert {type(answer) for answer in answers} == {StoreUnavailable}
            finally:
                cluster.thaw()
            await wait_until_recovered(database)
            await assert_all_connections_usable(database)
            assert await value(database, "SELECT COUNT(*) FROM things") <= CALLERS
            assert database.counts.waiting == 0

    url = cluster.fresh_database()
    if way == "direct":
        asyncio.run(body(url))
        return
    with poolers.PgBouncer(cluster.url("postgres")) as pooler:
        asyncio.run(body(pooled(pooler, url)))


def test_cancelled_and_failed_callers_do_not_wait_for_a_frozen_server(
    cluster: services.Cluster, short_timeouts: ShortTimeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled caller and a failing unit are released before the statement timeout."""
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 10 * PATIENCE_S)

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await assert_all_connections_usable(database)

            async def fails(transaction: Transaction) -> None:
                await transaction.one(PID)
                cluster.freeze()
                raise LookupError("as it is")

            try:
                async with asyncio.timeout(PATIENCE_S):
                    with short_timeouts(), pytest.raises(LookupError, match="as it is"):
                        await database.write(fails)
                    reading = asyncio.ensure_future(database.one(PID))
                    await let_units_queue()
                    reading.cancel()
                    await asyncio.wait({reading})
            finally:
                cluster.thaw()
            await wait_until_recovered(database)
            await assert_all_connections_usable(database)

    asyncio.run(body(cluster.fresh_database()))


def test_a_commit_waiting_for_its_standby_is_not_cancelled(
    cluster: services.Cluster, short_timeouts: ShortTimeouts
) -> None:
    """PostgreSQL would show rows that only the primary has, and a client that resends them would be told they exist.

    Until the standby has them, nobody sees them and the feed stays locked; a promotion contradicts no answer.
    """

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            await database.write(add_unit(1), queue_key=QUEUE_KEY)
            _require_standby(cluster, "one_that_is_away")
            try:
                await _are_commits_waiting(url)
                for number, queue_key in ((2, QUEUE_KEY), (3, None)):
                    with short_timeouts(), pytest.raises(StoreUnavailable) as failure:
                        await database.write(add_unit(number), queue_key=queue_key)
                    assert failure.value.is_uncertain
                    assert await numbers(database) == [1]
            finally:
                _require_standby(cluster, "")
            await wait_until_recovered(database)
            async with asyncio.timeout(PATIENCE_S):
                while await numbers(database) != [1, 2, 3]:  # noqa: ASYNC110 - another process works it off
                    await asyncio.sleep(0.01)

    asyncio.run(body(cluster.fresh_database()))


def _require_standby(cluster: services.Cluster, name: str) -> None:
    """Make every commit wait for the standby of this name; for none if it is empty."""
    cluster.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    cluster.execute("SELECT pg_reload_conf()")
    wait_until(lambda: cluster.value("SHOW synchronous_standby_names") == name, "the server to read its settings")


async def _are_commits_waiting(url: str) -> None:
    """Return whether a commit waits for the standby; the checkpointer applies the setting at its next turn."""
    observer, writer = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            committing = asyncio.ensure_future(writer.execute(_COMMIT))
            while not await observer.fetchval(_WAITS_FOR_STANDBY):
                if committing.done():
                    committing = asyncio.ensure_future(writer.execute(_COMMIT))
    finally:
        writer.terminate()
        await asyncio.wait({committing})
        committing.exception()
        await observer.close()


def test_one_timeout_drops_all_connections(cluster: services.Cluster, short_timeouts: ShortTimeouts) -> None:
    """The next unit does not wait on a remaining connection, which would take as long again."""

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            await assert_all_connections_usable(database)
            cluster.freeze()
            try:
                for is_sent in (True, False):
                    with short_timeouts(), pytest.raises(StoreUnavailable) as failure:
                        await database.write(add_unit(1), queue_key=QUEUE_KEY)
                    assert failure.value.is_uncertain == is_sent
            finally:
                cluster.thaw()

    asyncio.run(body(cluster.fresh_database()))


def test_closing_does_not_wait_for_a_frozen_server(
    cluster: services.Cluster, short_timeouts: ShortTimeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server process that is told to stop closes its connections so."""
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 10 * PATIENCE_S)

    async def body(url: str) -> None:
        database = await open_database(url, create=False, pool_size=POOL)
        await assert_all_connections_usable(database)
        cluster.freeze()
        try:
            callers = asyncio.ensure_future(database.one(PID))
            await let_units_queue()
            async with asyncio.timeout(PATIENCE_S):
                with short_timeouts():
                    await database.close()
                with pytest.raises(StoreUnavailable):
                    await callers
        finally:
            cluster.thaw()

    asyncio.run(body(cluster.fresh_database()))


def test_opening_does_not_wait_for_a_frozen_server(cluster: services.Cluster, short_timeouts: ShortTimeouts) -> None:
    """The start is refused, and the text says that there was no answer."""
    url = cluster.fresh_database()
    cluster.freeze()
    try:
        with short_timeouts(), pytest.raises(SettingsError, match="no answer"):
            asyncio.run(open_database(url, create=False))
    finally:
        cluster.thaw()


# The server or its connections end


class Writers:
    """Many writers of units with two rows each, which go on through failures and record what they were told."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answered: asyncio.Event | None = None
        self._is_refused = asyncio.Event()
        self._is_over = False
        self.answered: set[str] = set()
        self.refused: set[str] = set()

    async def write(self, turn: int) -> None:
        """Write until the end of the test."""
        queue_key = None if turn % 2 else turn % 4
        for at in itertools.count(1_000_000 * turn):
            if self._is_over:
                return
            try:
                await self._database.write(self._unit(at), queue_key=queue_key, rows=HEAVY if turn % 3 == 0 else 1)
                self._note(str(at))
            except StoreUnavailable as failure:
                if not failure.is_uncertain:
                    self.refused.add(str(at))
                    self._is_refused.set()

    async def wait_for_answers(self, count: int) -> None:
        """Wait until so many more units are answered."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                self._answered = asyncio.Event()
                await self._answered.wait()

    async def wait_for_refusal(self) -> None:
        """Wait until one more unit is refused for certain."""
        self._is_refused.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self._is_refused.wait()

    def end(self) -> None:
        self._is_over = True

    def _note(self, name: str) -> None:
        self.answered.add(name)
        if self._answered is not None:
            self._answered.set()

    def _unit(self, at: int) -> Work:
        async def work(transaction: Transaction) -> None:
            await transaction.run(PAIR, number=2 * at, content=str(at))
            await transaction.run(PAIR, number=2 * at + 1, content=str(at))

        return work


def test_answered_units_are_stored_and_refused_ones_are_not(cluster: services.Cluster) -> None:
    """Connections end and the server crashes under load: each unit of two rows is stored completely or not at all."""

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            writers = Writers(database)
            async with asyncio.TaskGroup() as group:
                for turn in range(12):
                    group.create_task(writers.write(turn))
                for _ in range(5):
                    await writers.wait_for_answers(20)
                    observer = await asyncpg.connect(url)
                    assert await observer.fetchval(TERMINATE_OTHERS) > 0
                    await observer.close()
                await writers.wait_for_answers(20)
                cluster.kill()
                await writers.wait_for_refusal()
                cluster.start()
                await writers.wait_for_answers(20)
                writers.end()
            rows = {row["content"]: row["count"] for row in await database.all(PAIRS)}
        assert set(rows.values()) == {2}
        assert writers.answered <= set(rows)
        assert not writers.refused & set(rows)

    asyncio.run(body(cluster.fresh_database()))


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("rows", [None, 1, HEAVY])
def test_a_commit_whose_answer_is_lost_is_uncertain(postgresql_url: str, is_stored: bool, rows: int | None) -> None:
    """The caller is told neither that it is stored nor that it is not. The next unit has a new connection."""

    async def body() -> None:
        with Proxy(postgresql_url) as between:
            async with opened(between.url(postgresql_url), pool_size=2) as database:
                await execute(database, MAKE)
                lose = between.drop_answers_after if is_stored else between.drop_request
                lose(lambda sent: b"COMMIT\0" in sent)
                with pytest.raises(StoreUnavailable) as failure:
                    await database.write(add_unit(1), queue_key=None if rows is None else QUEUE_KEY, rows=rows or 1)
                assert failure.value.is_uncertain
                between.drop_answers_after(None)
                await database.write(add_unit(2), queue_key=None if rows is None else QUEUE_KEY, rows=rows or 1)
                assert await numbers(database) == ([1, 2] if is_stored else [2])

    asyncio.run(body())


def test_cut_connections_are_replaced(postgresql_url: str) -> None:
    """Unused ones are replaced too: at most one caller per connection is told to try again."""

    async def body() -> None:
        with Proxy(postgresql_url) as between:
            async with opened(between.url(postgresql_url), pool_size=POOL) as database:
                await execute(database, MAKE)
                await assert_all_connections_usable(database)
                between.cut()
                between.mend()
                answers = await asyncio.gather(*(every_way(database, n) for n in range(40)), return_exceptions=True)
                assert all(not isinstance(it, Exception) or isinstance(it, StoreUnavailable) for it in answers)
                await wait_until_recovered(database)
                await assert_all_connections_usable(database)

    asyncio.run(body())


# The server refuses


@pytest.mark.parametrize("state", STATES)
@on_postgresql
async def test_a_lack_of_resources_undoes_the_unit(database: Database, state: str) -> None:
    """A full disk and the like, in the middle of a unit: nothing is stored, and that is certain."""
    await execute(database, MAKE)
    await execute(
        database,
        f"""CREATE FUNCTION lacks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.number % 10 = 7 THEN RAISE EXCEPTION 'lacks' USING ERRCODE = '{state}'; END IF; RETURN NEW;
        END $$""",
    )
    await execute(database, "CREATE TRIGGER lacks BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION lacks()")

    def unit(*added: int) -> Work:
        async def work(transaction: Transaction) -> None:
            for number in added:
                await transaction.run(ADD, number=number)

        return work

    for queue_key, rows in ((None, 1), (QUEUE_KEY, 1), (QUEUE_KEY + 1, HEAVY)):
        with pytest.raises(StoreUnavailable, match=state) as failure:
            await database.write(unit(1, 2, 7), queue_key=queue_key, rows=rows)
        assert not failure.value.is_uncertain
    with pytest.raises(StoreUnavailable, match=state):
        await database.write_one(ADD, number=7)
    together = await asyncio.gather(
        *(database.write(unit(*added), queue_key=QUEUE_KEY + 2) for added in ((11,), (12, 17), (13,))),
        return_exceptions=True,
    )
    assert {type(answer) for answer in together} == {StoreUnavailable}
    assert await numbers(database) == []
    await database.write(unit(1), queue_key=QUEUE_KEY + 3)
    assert await numbers(database) == [1]


def test_too_many_connections_are_a_store_failure(postgresql: services.PostgresqlServer, postgresql_url: str) -> None:
    """The caller is told to try again and that nothing is stored. It recovers when other connections close."""
    name = urlsplit(postgresql_url).path[1:]

    async def body() -> None:
        async with opened(postgresql_url, pool_size=POOL) as database:
            await execute(database, MAKE)
            others = [await asyncpg.connect(postgresql_url) for _ in range(2)]
            # The limit does not apply to superusers, which our servers should not be.
            postgresql.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'x' CONNECTION LIMIT 1")
            postgresql.execute(f'ALTER DATABASE "{name}" OWNER TO "{name}"')
            host = urlsplit(postgresql_url).netloc.rpartition("@")[2]
            async with opened(f"postgresql://{name}:x@{host}/{name}", pool_size=POOL) as limited:
                answers = await asyncio.gather(
                    *(limited.one(sql("SELECT pg_sleep(0.1)")) for _ in range(POOL)),
                    limited.write(lambda transaction: transaction.one(PID), queue_key=1),
                    return_exceptions=True,
                )
                refused = [answer for answer in answers if isinstance(answer, BaseException)]
                assert {type(answer) for answer in refused} == {StoreUnavailable}
                assert all("53300" in str(answer) and not answer.is_uncertain for answer in refused)  # type: ignore[attr-defined]
                assert len(refused) < len(answers)
                postgresql.execute(f'ALTER ROLE "{name}" CONNECTION LIMIT -1')
                await wait_until_recovered(limited)
                await assert_all_connections_usable(limited)
            for other in others:
                await other.close()

    try:
        asyncio.run(body())
    finally:
        postgresql.execute(f'ALTER DATABASE "{name}" OWNER TO CURRENT_USER')
        postgresql.execute(f'DROP ROLE IF EXISTS "{name}"')


@on_postgresql
async def test_a_commit_that_fails_is_uncertain(database: Database) -> None:
    """So does a Citus that loses a node at COMMIT: an internal error, and not a defect of ours."""
    await execute(database, MAKE)
    await execute(
        database,
        """CREATE FUNCTION loses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not commit transaction for shard 102008' USING ERRCODE = 'XX000';
        END $$""",
    )
    await execute(
        database,
        "CREATE CONSTRAINT TRIGGER loses AFTER INSERT ON things DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION loses()",
    )
    asks: list[Callable[[], Awaitable[Any]]] = [
        lambda: database.write(add_unit(1)),
        lambda: database.write(add_unit(1), queue_key=QUEUE_KEY),
        lambda: database.write_one(ADD, number=1),
    ]
    for ask in asks:
        with pytest.raises(StoreUnavailable, match="XX000") as failure:
            await ask()
        assert failure.value.is_uncertain
        assert "could not commit" not in failure.value.text


def test_a_database_that_accepts_no_connections_is_a_store_failure(
    postgresql: services.PostgresqlServer, postgresql_url: str
) -> None:
    """SQLSTATE 55000, as while an operator works on it: nothing was sent, so nothing is stored."""
    name = urlsplit(postgresql_url).path[1:]

    async def body() -> None:
        async with opened(postgresql_url, pool_size=POOL) as database:
            postgresql.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            try:
                with pytest.raises(StoreUnavailable, match="55000") as failure:
                    await database.write(add_unit(1), queue_key=QUEUE_KEY)
                assert not failure.value.is_uncertain
            finally:
                postgresql.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
            await wait_until_recovered(database)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("state", "phase", "kind"),
    [
        ("55000", Phase.CONNECT, Kind.STORE),
        ("42501", Phase.CONNECT, Kind.STORE),
        ("ZZ999", Phase.CONNECT, Kind.STORE),
        ("ZZ999", Phase.STATEMENT, Kind.DEFECT),
        ("23505", Phase.STATEMENT, Kind.DEFECT),
        ("53100", Phase.STATEMENT, Kind.STORE),
        ("08006", Phase.STATEMENT, Kind.UNCERTAIN),
        ("40001", Phase.COMMIT, Kind.RETRY),
        ("40003", Phase.COMMIT, Kind.UNCERTAIN),
        ("53100", Phase.COMMIT, Kind.UNCERTAIN),
        ("23503", Phase.COMMIT, Kind.DEFECT),
        ("ZZ999", Phase.COMMIT, Kind.UNCERTAIN),
        ("XX000", Phase.STATEMENT, Kind.DEFECT),
        ("XX000", Phase.AUTOCOMMIT, Kind.UNCERTAIN),
        ("42601", Phase.AUTOCOMMIT, Kind.DEFECT),
    ],
)
def test_a_failure_is_judged_by_its_state_and_its_phase(state: str, phase: Phase, kind: Kind) -> None:
    assert kind_of(asyncpg.PostgresError.new({"C": state, "M": "as PostgreSQL sends it"}), phase) is kind


def test_every_class_of_errors_is_judged() -> None:
    """The table names each class that the driver knows; an unknown one would be our defect."""
    states = {getattr(it, "sqlstate", None) for it in vars(asyncpg.exceptions).values()} - {None}
    classes = {state[:2] for state in states if state} - {"00", "01", "02"}  # success, warnings, no rows
    assert classes == {state[:2] for state in KIND_BY_STATE}


@on_postgresql
async def test_a_unit_that_continues_after_a_failed_statement_is_a_defect(database: Database) -> None:
    """PostgreSQL answers its COMMIT with ROLLBACK, so no caller may be told that anything is stored."""
    await execute(database, MAKE)

    async def ignore_failure(transaction: Transaction) -> str:
        await transaction.run(ADD, number=1)
        with contextlib.suppress(asyncpg.UniqueViolationError):
            await transaction.run(ADD, number=1)
        return "stored"

    for queue_key in (None, QUEUE_KEY):
        with pytest.raises(RuntimeError, match="nothing is stored"):
            await database.write(ignore_failure, queue_key=queue_key)
    assert await numbers(database) == []


@on_postgresql
async def test_a_unit_is_run_again_after_a_migration(database: Database) -> None:
    """Its statements were prepared for the previous table definition."""
    await execute(database, MAKE)
    everything = sql("SELECT * FROM things")
    for queue_key in (None, QUEUE_KEY):
        await database.write(lambda transaction: transaction.all(everything), queue_key=queue_key)
    await execute(database, "ALTER TABLE things ADD COLUMN colour TEXT")
    for queue_key in (None, QUEUE_KEY):
        assert await database.write(lambda transaction: transaction.all(everything), queue_key=queue_key) == []


# One of our processes is frozen


def test_a_process_frozen_in_a_unit_does_not_lock_its_feed(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends an idle transaction; others go on, and nothing of it is stored."""
    monkeypatch.setattr(postgresql_transactions, "IDLE_TIMEOUT_S", 2.0)

    async def body() -> None:
        async with opened(postgresql_url) as database, another_process(postgresql_url) as other:
            await execute(database, MAKE)
            await database.write_one(ADD, number=1)
            freed = asyncio.Event()

            async def freezes(transaction: Transaction) -> None:
                await transaction.run(ADD, number=2)
                await transaction.run(CHANGE, number=1, content="frozen")
                async with asyncio.timeout(PATIENCE_S):  # it goes on only once the lock is free
                    await other.connection.execute("UPDATE things SET content = 'theirs' WHERE number = 1")
                freed.set()
                await transaction.run(CHANGE, number=1, content="late")

            with pytest.raises(StoreUnavailable) as failure:
                await database.write(freezes, queue_key=QUEUE_KEY)
            assert freed.is_set()
            assert "25P03" in str(failure.value) or "08" in str(failure.value)
            assert await value(database, "SELECT content FROM things WHERE number = 1") == "theirs"
            assert await numbers(database) == [1]

    asyncio.run(body())
