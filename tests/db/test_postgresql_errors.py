"""PostgreSQL in trouble, injected for real: whoever asks is told so soon, nothing is half stored, all heals by itself.

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

from stoplist.db import Database, Transaction, pools, postgresql
from stoplist.db.opening import open_database
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import execute, on_postgresql, opened, pooled, sql, value
from tests.db import hosts
from tests.db.failing_databases import MAY_WAIT, PATIENCE_S, PID, POOL, Work, adds, has_all_connections, healed
from tests.db.relay import ANSWERED, ARRIVES, relayed
from tests.db.waiting import ADD, ALL, CHANGE, HEAVY, MAKE, QUEUE_KEY, another_process, numbers, queued
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services
from tests.services.keeping import wait_until

pytestmark = pytest.mark.usefixtures("patient")

Impatient = Callable[[], AbstractContextManager[None]]
ASKERS = 3_000

PAIR = sql("INSERT INTO things (number, content) VALUES (:number, :content)")
PAIRS = sql("SELECT content, COUNT(*) AS count FROM things GROUP BY content")
TERMINATE_OTHERS = """
    SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_COMMIT = "SELECT pg_logical_emit_message(true, 'a test', 'writes, and so commits')"
_WAITS_FOR_STANDBY = "SELECT COUNT(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
# What a full disk, no memory, no lock table and so on look like from a statement; and how a shutdown begins.
STATES = ("53100", "53200", "53400", "57014", "57P03", "58030", "55P03", "25006")


def every_way(database: Database, number: int, queue_key: int = QUEUE_KEY) -> Awaitable[Any]:
    """One of the ways in which the database is asked, in turn."""
    ways: list[Callable[[], Awaitable[Any]]] = [
        lambda: database.one(ALL),
        lambda: database.all(ALL),
        lambda: database.one_large(ALL),
        lambda: database.write_one(ADD, number=number),
        lambda: database.write(adds(number)),
        lambda: database.write(adds(number), queue_key=queue_key),
        lambda: database.write(adds(number), queue_key=queue_key, rows=HEAVY),
        database.clock_ms,
    ]
    return ways[number % len(ways)]()


# The server stands still


@pytest.mark.parametrize("way", ["direct", "pooled"])
def test_a_frozen_server_refuses_thousands_soon_and_heals(
    cluster: services.Cluster, impatient: Impatient, way: str
) -> None:
    """Most at once, for so many wait already; the others when their time is up. Then it goes on as if nothing was."""

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            await has_all_connections(database)
            hosts.freeze(cluster)
            try:
                with impatient():
                    asked = [asyncio.ensure_future(every_way(database, number)) for number in range(ASKERS)]
                    await queued()
                    refused = [one for one in asked if one.done()]
                    # Two pools, the room for heavy reads, and one line for small and heavy units each.
                    assert len(refused) >= ASKERS - 5 * MAY_WAIT - POOL
                    async with asyncio.timeout(PATIENCE_S):
                        answers = await asyncio.gather(*asked, return_exceptions=True)
                    assert {type(answer) for answer in answers} == {StoreUnavailable}
            finally:
                hosts.thaw(cluster)
            await healed(database)
            await has_all_connections(database)
            assert await value(database, "SELECT COUNT(*) FROM things") <= ASKERS
            assert database.counts.waiting == 0

    url = cluster.fresh_database()
    if way == "direct":
        asyncio.run(body(url))
        return
    with poolers.pgbouncer(cluster.url("postgres")) as pooler:
        asyncio.run(body(pooled(pooler, url)))


def test_whoever_gives_up_while_the_server_is_frozen_does_not_wait_for_it(
    cluster: services.Cluster, impatient: Impatient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asker that hangs up, and a unit that fails by itself: neither is kept until a statement may take no longer."""
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 10 * PATIENCE_S)

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await has_all_connections(database)

            async def fails(transaction: Transaction) -> None:
                await transaction.one(PID)
                hosts.freeze(cluster)
                raise LookupError("as it is")

            try:
                async with asyncio.timeout(PATIENCE_S):
                    with impatient(), pytest.raises(LookupError, match="as it is"):
                        await database.write(fails)
                    reading = asyncio.ensure_future(database.one(PID))
                    await queued()
                    reading.cancel()
                    await asyncio.wait({reading})
            finally:
                hosts.thaw(cluster)
            await healed(database)
            await has_all_connections(database)

    asyncio.run(body(cluster.fresh_database()))


def test_a_commit_that_waits_for_its_standby_is_not_told_to_stop(
    cluster: services.Cluster, impatient: Impatient
) -> None:
    """PostgreSQL would show what only the primary has; whoever sent it again would be told that it is there.

    Until the standby has it nobody sees it, the feed stays locked, and after a promotion nobody was told otherwise.
    """

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            await database.write(adds(1), queue_key=QUEUE_KEY)
            _wait_for_standby(cluster, "one_that_is_away")
            try:
                await _commits_wait(url)
                for number, queue_key in ((2, QUEUE_KEY), (3, None)):
                    with impatient(), pytest.raises(StoreUnavailable) as failure:
                        await database.write(adds(number), queue_key=queue_key)
                    assert failure.value.is_uncertain
                    assert await numbers(database) == [1]
            finally:
                _wait_for_standby(cluster, "")
            await healed(database)
            async with asyncio.timeout(PATIENCE_S):
                while await numbers(database) != [1, 2, 3]:  # noqa: ASYNC110 - another process works it off
                    await asyncio.sleep(0.01)

    asyncio.run(body(cluster.fresh_database()))


def _wait_for_standby(cluster: services.Cluster, name: str) -> None:
    """From now on every commit waits for the standby of that name; for none where it is empty."""
    cluster.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    cluster.execute("SELECT pg_reload_conf()")
    wait_until(lambda: cluster.value("SHOW synchronous_standby_names") == name, "the server to read its settings")


async def _commits_wait(url: str) -> None:
    """Whether a commit waits is for the checkpointer to say, which reads the settings when its turn comes."""
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


def test_one_unit_finds_out_for_all_that_nobody_answers(cluster: services.Cluster, impatient: Impatient) -> None:
    """The next one does not wait for an answer on a connection that is left, which would take as long once more."""

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            await has_all_connections(database)
            hosts.freeze(cluster)
            try:
                for is_sent in (True, False):
                    with impatient(), pytest.raises(StoreUnavailable) as failure:
                        await database.write(adds(1), queue_key=QUEUE_KEY)
                    assert failure.value.is_uncertain == is_sent
            finally:
                hosts.thaw(cluster)

    asyncio.run(body(cluster.fresh_database()))


def test_closing_does_not_wait_for_a_frozen_server(
    cluster: services.Cluster, impatient: Impatient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server process that is told to stop does."""
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 10 * PATIENCE_S)

    async def body(url: str) -> None:
        database = await open_database(url, create=False, pool_size=POOL)
        await has_all_connections(database)
        hosts.freeze(cluster)
        try:
            asked = asyncio.ensure_future(database.one(PID))
            await queued()
            async with asyncio.timeout(PATIENCE_S):
                with impatient():
                    await database.close()
                with pytest.raises(StoreUnavailable):
                    await asked
        finally:
            hosts.thaw(cluster)

    asyncio.run(body(cluster.fresh_database()))


def test_an_opening_does_not_wait_for_a_frozen_server(cluster: services.Cluster, impatient: Impatient) -> None:
    """The start is refused, and the text says that it does not answer."""
    url = cluster.fresh_database()
    hosts.freeze(cluster)
    try:
        with impatient(), pytest.raises(SettingsError, match="no answer"):
            asyncio.run(open_database(url, create=False))
    finally:
        hosts.thaw(cluster)


# The server goes


class Writers:
    """Many who write units of two rows each, whatever happens, and remember what they were told."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._comes: asyncio.Event | None = None
        self._is_refused = asyncio.Event()
        self._is_over = False
        self.answered: set[str] = set()
        self.refused: set[str] = set()

    async def writes(self, turn: int) -> None:
        """One of them, until it is over."""
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

    async def go_on(self, count: int) -> None:
        """So many more units are answered."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                self._comes = asyncio.Event()
                await self._comes.wait()

    async def are_refused(self) -> None:
        """One more unit is refused for certain."""
        self._is_refused.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self._is_refused.wait()

    def end(self) -> None:
        self._is_over = True

    def _note(self, name: str) -> None:
        self.answered.add(name)
        if self._comes is not None:
            self._comes.set()

    def _unit(self, at: int) -> Work:
        async def work(transaction: Transaction) -> None:
            await transaction.run(PAIR, number=2 * at, content=str(at))
            await transaction.run(PAIR, number=2 * at + 1, content=str(at))

        return work


def test_what_was_answered_is_stored_and_what_was_refused_is_not(cluster: services.Cluster) -> None:
    """Connections are ended and the server crashes, under load: each unit of two rows is there whole or not at all."""

    async def body(url: str) -> None:
        async with opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            writers = Writers(database)
            async with asyncio.TaskGroup() as group:
                for turn in range(12):
                    group.create_task(writers.writes(turn))
                for _ in range(5):
                    await writers.go_on(20)
                    observer = await asyncpg.connect(url)
                    assert await observer.fetchval(TERMINATE_OTHERS) > 0
                    await observer.close()
                await writers.go_on(20)
                hosts.crash(cluster)
                await writers.are_refused()
                cluster.stop(keep=True)
                cluster.start()
                await writers.go_on(20)
                writers.end()
            rows = {row["content"]: row["count"] for row in await database.all(PAIRS)}
        assert set(rows.values()) == {2}
        assert writers.answered <= set(rows)
        assert not writers.refused & set(rows)

    asyncio.run(body(cluster.fresh_database()))


@pytest.mark.parametrize("when", [ARRIVES, ANSWERED])
@pytest.mark.parametrize("rows", [None, 1, HEAVY])
def test_a_commit_whose_answer_is_lost_is_uncertain(postgresql_url: str, when: str, rows: int | None) -> None:
    """Nobody is told that it is stored, nor that it is not; the next unit has a new connection."""

    async def body() -> None:
        async with relayed(postgresql_url) as (relay, url), opened(url, pool_size=2) as database:
            await execute(database, MAKE)
            relay.cut(b"COMMIT\0", when)
            with pytest.raises(StoreUnavailable) as failure:
                await database.write(adds(1), queue_key=None if rows is None else QUEUE_KEY, rows=rows or 1)
            assert relay.was_cut.is_set()
            assert failure.value.is_uncertain
            await database.write(adds(2), queue_key=None if rows is None else QUEUE_KEY, rows=rows or 1)
            assert await numbers(database) == ([2] if when == ARRIVES else [1, 2])

    asyncio.run(body())


def test_a_cut_of_every_connection_is_met_by_new_ones(postgresql_url: str) -> None:
    """Also of those that nobody was using: at most one asker for each is told to try again."""

    async def body() -> None:
        async with relayed(postgresql_url) as (relay, url), opened(url, pool_size=POOL) as database:
            await execute(database, MAKE)
            await has_all_connections(database)
            relay.cut_all()
            answers = await asyncio.gather(*(every_way(database, n) for n in range(40)), return_exceptions=True)
            assert all(not isinstance(it, Exception) or isinstance(it, StoreUnavailable) for it in answers)
            await healed(database)
            await has_all_connections(database)

    asyncio.run(body())


# The server says no


@pytest.mark.parametrize("state", STATES)
@on_postgresql
async def test_what_the_server_lacks_is_its_trouble_and_undoes_the_unit(database: Database, state: str) -> None:
    """A full disk and the like, in the middle of a unit: nothing of it is stored, and that is certain."""
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

    for queue_key, rows in ((None, 1), (QUEUE_KEY, 1), (QUEUE_KEY, HEAVY)):
        with pytest.raises(StoreUnavailable, match=state) as failure:
            await database.write(unit(1, 2, 7), queue_key=queue_key, rows=rows)
        assert not failure.value.is_uncertain
    with pytest.raises(StoreUnavailable, match=state):
        await database.write_one(ADD, number=7)
    together = await asyncio.gather(
        *(database.write(unit(*added), queue_key=QUEUE_KEY) for added in ((11,), (12, 17), (13,))),
        return_exceptions=True,
    )
    assert {type(answer) for answer in together} == {StoreUnavailable}
    assert await numbers(database) == []
    await database.write(unit(1), queue_key=QUEUE_KEY)
    assert await numbers(database) == [1]


def test_too_many_connections_are_the_store_s_trouble(postgresql: services.Server, postgresql_url: str) -> None:
    """Whoever gets none is told to try again, and that nothing is stored; it heals when others go."""
    name = urlsplit(postgresql_url).path[1:]

    async def body() -> None:
        async with opened(postgresql_url, pool_size=POOL) as database:
            await execute(database, MAKE)
            others = [await asyncpg.connect(postgresql_url) for _ in range(2)]
            # The limit holds for whoever is no superuser, as no server of ours should be.
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
                await healed(limited)
                await has_all_connections(limited)
            for other in others:
                await other.close()

    try:
        asyncio.run(body())
    finally:
        postgresql.execute(f'ALTER DATABASE "{name}" OWNER TO CURRENT_USER')
        postgresql.execute(f'DROP ROLE IF EXISTS "{name}"')


@on_postgresql
async def test_a_unit_that_goes_on_after_a_failed_statement_is_a_defect(database: Database) -> None:
    """PostgreSQL answers its COMMIT with ROLLBACK; nobody may be told that anything is stored."""
    await execute(database, MAKE)

    async def swallows(transaction: Transaction) -> str:
        await transaction.run(ADD, number=1)
        with contextlib.suppress(asyncpg.UniqueViolationError):
            await transaction.run(ADD, number=1)
        return "stored"

    for queue_key in (None, QUEUE_KEY):
        with pytest.raises(RuntimeError, match="nothing is stored"):
            await database.write(swallows, queue_key=queue_key)
    assert await numbers(database) == []


@on_postgresql
async def test_a_unit_that_met_a_migration_is_run_again(database: Database) -> None:
    """Its statements were prepared for a table that looks otherwise now."""
    await execute(database, MAKE)
    everything = sql("SELECT * FROM things")
    for queue_key in (None, QUEUE_KEY):
        await database.write(lambda transaction: transaction.all(everything), queue_key=queue_key)
    await execute(database, "ALTER TABLE things ADD COLUMN colour TEXT")
    for queue_key in (None, QUEUE_KEY):
        assert await database.write(lambda transaction: transaction.all(everything), queue_key=queue_key) == []


# A process of ours stands still


def test_a_process_that_freezes_in_a_unit_does_not_hold_its_feed(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends a transaction from which nothing comes any more; others go on, and nothing of it is stored."""
    monkeypatch.setattr(postgresql, "IDLE_TIMEOUT_S", 2.0)

    async def body() -> None:
        async with opened(postgresql_url) as database, another_process(postgresql_url) as other:
            await execute(database, MAKE)
            await database.write_one(ADD, number=1)
            freed = asyncio.Event()

            async def freezes(transaction: Transaction) -> None:
                await transaction.run(ADD, number=2)
                await transaction.run(CHANGE, number=1, content="frozen")
                async with asyncio.timeout(PATIENCE_S):  # until the lock is free: only then does it go on
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
