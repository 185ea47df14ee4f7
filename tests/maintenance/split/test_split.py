"""A deployment and its copy become two databases, and one again: nothing is lost, and no server starts in between.

Source: docs/interface.md section D1, Feeds apart.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from stoplist import __version__
from stoplist.databases import pair
from stoplist.databases.foreign_feeds import find_foreign_feeds
from stoplist.databases.opening import check_databases
from stoplist.db.sharding import FEED_TABLES, distribute
from stoplist.db.split import SplitDatabase
from stoplist.errors import Refused, SettingsError, StoplistError, StoreUnavailable
from stoplist.maintenance.split import exclusive
from stoplist.maintenance.split.exclusive import ComparedTables, Report
from stoplist.maintenance.split.split import SplitResult, join_feeds, split_feeds
from stoplist.settings import Settings, load
from tests.builders import ADMINISTRATOR, STRANGER, apart, execute, migrated, on_database, opened
from tests.constants import PATIENCE_S
from tests.fakes import FakeClock
from tests.migration_fixture import fill_every_table, rows_of
from tests.services.citus import Citus
from tests.services.postgresql import PostgresqlServer, run_statements

Rows = dict[str, list[tuple[Any, ...]]]

# As an older program leaves it: no ids of organizations, neither with them nor with their feeds.
WITHOUT_IDS = ("UPDATE organizations SET uid = NULL", "UPDATE feeds SET organization_uid = NULL")

A_FEED = "feeds (feed_id, organization_id, channel, generation, head_seq, writes) VALUES (1,1,'a','g',0,0)"


class SplitEnds(BaseException):
    """The program ends here."""


class Two(NamedTuple):
    """A filled deployment, and a complete copy of its database."""

    accounts: str
    feeds: str

    @property
    def settings(self) -> Settings:
        urls = {"STOPLIST_DATABASE_URL": self.accounts, "STOPLIST_FEEDS_URL": self.feeds}
        return load(urls, env_file=Path("absent/.env"))

    def split(self, report: Report = lambda _: None, actor: Any = ADMINISTRATOR) -> SplitResult:
        return asyncio.run(split_feeds(actor, FakeClock(), self.settings, report))

    def join(self) -> SplitResult:
        return asyncio.run(join_feeds(ADMINISTRATOR, FakeClock(), self.settings, lambda _: None))

    def start(self) -> None:
        """Check the two as a server does before it starts."""

        async def body() -> None:
            async with opened(apart(self.accounts, self.feeds), pool_size=2) as database:
                assert isinstance(database, SplitDatabase)
                assert await check_databases(database, environment="development") is not None
                assert await find_foreign_feeds(database) == []

        asyncio.run(body())


def start_on(url: str) -> None:
    """Check one database as a server does before it starts."""

    async def body() -> None:
        async with opened(url, pool_size=2) as database:
            assert await check_databases(database, environment="development") is not None

    asyncio.run(body())


@pytest.fixture(scope="module")
def filled(postgresql: PostgresqlServer) -> Iterator[str]:
    """Yield the name of a database with rows in every table."""
    url = postgresql.fresh_database("filled")

    async def fill() -> None:
        async with migrated(url, pool_size=2) as database:
            await fill_every_table(database, FakeClock())

    asyncio.run(fill())
    run_statements(url, *WITHOUT_IDS)
    yield url.rsplit("/", 1)[1]
    postgresql.drop_database(url)


@pytest.fixture
def two(filled: str, postgresql: PostgresqlServer) -> Iterator[Two]:
    """Yield two copies of it, for this test."""
    urls = Two(*(postgresql.fresh_database(name, template=filled) for name in ("accounts", "feeds")))
    yield urls
    for url in urls:
        postgresql.drop_database(url)


@pytest.fixture(scope="module")
def original(filled: str, postgresql: PostgresqlServer) -> Rows:
    """Return all rows of that database."""
    rows = comparable(postgresql.url(filled))
    assert all(rows.values())
    return rows


def comparable(url: str) -> Rows:
    """Return all rows of a database by table, without the ids of organizations and what is in the audit about this."""
    rows = rows_of(url)
    for table in ("organizations", "feeds"):
        rows[table] = sorted(row[:-1] for row in rows[table])
    rows["audit"] = [row for row in rows["audit"] if row[6] not in ("database.split", "database.joined")]
    return rows


def assert_split(two: Two, original: Rows) -> None:
    """Assert that each row is in the database where it belongs and in no other, and that a server starts on the two."""
    accounts, feeds = comparable(two.accounts), comparable(two.feeds)
    for table, rows in original.items():
        expected = ([], rows) if table in FEED_TABLES else (rows, [])
        assert (accounts[table], feeds[table]) == expected, table
    two.start()
    for url, row in (
        (two.accounts, A_FEED),
        (two.feeds, "organizations (slug, name, created_ms) VALUES ('a', 'A', 0)"),
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            run_statements(url, f"INSERT INTO {row}")
    for alone in two:
        with pytest.raises(SettingsError, match="STOPLIST_FEEDS_URL"):
            start_on(alone)


def assert_as_before(two: Two, original: Rows) -> None:
    """Assert that the deployment is as before, and that no server starts on the two."""
    assert comparable(two.accounts) == original
    start_on(two.accounts)
    with pytest.raises(SettingsError, match="holds the feeds itself"):
        two.start()


# Apart


def test_each_row_stays_where_it_belongs(two: Two, original: Rows) -> None:
    """Organizations and feeds of older programs get the ids by which they know each other."""
    steps: list[ComparedTables] = []
    result = two.split(steps.append)
    assert result.rows == sum(len(original[table]) for table in FEED_TABLES)
    assert_split(two, original)
    assert {step.table for step in steps} == {*original, ""}
    assert steps[-1].tables == steps[-1].all_tables == len(original)


def test_the_audit_says_who_did_it(two: Two) -> None:
    result = two.split()
    (row,) = run_statements(two.accounts, "SELECT actor_id, target, detail FROM audit WHERE action = 'database.split'")
    assert (row["actor_id"], row["target"]) == (ADMINISTRATOR.id, "database")
    assert row["detail"] == f'{{"rows":{result.rows}}}'


def test_the_feeds_keep_no_key_of_the_accounts_and_end_older_programs(two: Two) -> None:
    for url in two:
        run_statements(url, "UPDATE deployment SET oldest_program = '0.1.0'")
    two.split()
    facts = "SELECT reading_key IS NULL AS is_gone, oldest_program FROM deployment"
    assert [tuple(run_statements(url, facts)[0]) for url in two] == [(False, __version__), (True, __version__)]


def test_a_second_time_the_wrong_halves_are_emptied(two: Two, original: Rows) -> None:
    """Somebody began to copy the feeds back, and gave it up. Servers may run meanwhile."""
    two.split()
    restore_feeds(two)
    assert two.split() == SplitResult(None)
    assert_split(two, original)


def end_at(patch: pytest.MonkeyPatch, call: int, *, does_it: bool) -> None:
    """End the program when a database is told its place for the `call`th time, before or after it."""
    calls = iter(range(1, call))

    def ending(tell: Callable[..., Any]) -> Callable[..., Any]:
        async def end(*values: Any, **named: Any) -> None:
            is_end = next(calls, None) is None
            if does_it or not is_end:
                await tell(*values, **named)
            if is_end:
                raise SplitEnds

        return end

    for name in ("keep_pair_id", "assign_part"):
        patch.setattr(pair, name, ending(getattr(pair, name)))


@pytest.mark.parametrize("does_it", [False, True])
@pytest.mark.parametrize("call", [1, 2, 3], ids=["prepared", "the feeds", "the accounts"])
def test_an_end_at_any_moment_is_gone_on_with(
    two: Two, original: Rows, monkeypatch: pytest.MonkeyPatch, call: int, does_it: bool
) -> None:
    """Until the end the deployment is whole where it was."""
    with monkeypatch.context() as patch:
        end_at(patch, call, does_it=does_it)
        with pytest.raises(SplitEnds):
            two.split()
    assert_as_before(two, original)
    if call == 3:
        assert not any(rows for table, rows in comparable(two.feeds).items() if table not in FEED_TABLES)
        with pytest.raises(SettingsError, match="database of a deployment's feeds"):
            start_on(two.feeds)
    two.split()
    assert_split(two, original)


def end_between(two: Two, patch: pytest.MonkeyPatch) -> None:
    """End once the feeds are durable, before the accounts are changed."""
    with patch.context() as inner:
        end_at(inner, 3, does_it=False)
        with pytest.raises(SplitEnds):
            two.split()


CHANGES = {
    "a record": "UPDATE unsubscribes SET status = 'resubscribed' WHERE seq = 7",
    "a head": "UPDATE feeds SET head_seq = head_seq + 1 WHERE channel = 'email'",
    "a row that is lost": "DELETE FROM feed_days",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES)
def test_what_a_server_stored_in_between_is_not_deleted(
    two: Two, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """It was started on the old database, and a later run must not take the older copy for the feeds."""
    end_between(two, monkeypatch)
    run_statements(two.accounts, statement)
    before = comparable(two.accounts)
    with pytest.raises(Refused, match="do not hold the same"):
        two.split()
    assert_as_before(two, before)


@pytest.mark.parametrize(
    ("part", "statement"),
    [
        *(("feeds", statement) for statement in CHANGES.values()),
        ("accounts", CHANGES["a record"]),
        ("accounts", "UPDATE clients SET epoch = epoch + 1"),
    ],
)
def test_a_copy_that_differs_is_refused(two: Two, part: str, statement: str) -> None:
    """A server wrote into one of the two after the copy was made."""
    run_statements(getattr(two, part), statement)
    before = comparable(two.accounts)
    with pytest.raises(Refused, match="do not hold the same"):
        two.split()
    assert_as_before(two, before)


@pytest.mark.parametrize("part", ["accounts", "feeds"])
def test_while_anything_is_connected_nothing_is_done(
    two: Two, original: Rows, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A server that runs would go on to store opt-outs in the database of the accounts."""
    monkeypatch.setattr(exclusive, "_PAUSE_S", 0)

    async def body() -> None:
        connection = await asyncpg.connect(getattr(two, part))
        try:
            with pytest.raises(Refused, match=r"connections: 1, accounts: stoplist"):
                await split_feeds(ADMINISTRATOR, FakeClock(), two.settings, lambda _: None)
        finally:
            await connection.close()

    asyncio.run(body())
    assert_as_before(two, original)


def test_nothing_is_read_or_written_meanwhile(two: Two) -> None:
    """A server that starts waits, before it knows that this database is a whole one no longer."""

    def report(step: ComparedTables) -> None:
        if step.tables == 0:
            for url in two:
                for table in ("deployment", "copy_progress", "unsubscribes", "people"):
                    with pytest.raises(asyncpg.LockNotAvailableError):
                        run_statements(url, "SET lock_timeout = 1", f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608

    two.split(report)


def test_of_two_runs_one_goes_on(two: Two, original: Rows) -> None:
    def report(step: ComparedTables) -> None:
        if step.tables == 0:
            # Not waited for at its end: a run that was not refused would wait for this one.
            thread = ThreadPoolExecutor(max_workers=1)
            with pytest.raises(Refused, match="Another command"):
                thread.submit(two.split).result(timeout=PATIENCE_S)
            thread.shutdown(wait=False)

    two.split(report)
    assert_split(two, original)


UNSUITABLE: dict[str, tuple[Callable[[Two], Two], str]] = {
    "the same twice": (lambda two: two._replace(feeds=two.accounts), "both settings name the same"),
    "exchanged, once they are a pair": (lambda two: exchanged(two), "exchanged"),
    "feeds of another deployment": (lambda two: with_feeds_of_another(two), "of another deployment"),
    "another environment": (
        lambda two: changed(two, "UPDATE deployment SET environment = 'production'"),
        "With STOPLIST_FEEDS_URL: This database belongs to the production",
    ),
    "an older schema": (
        lambda two: changed(two, "UPDATE deployment SET schema_version = 19"),
        "With STOPLIST_FEEDS_URL: The database has schema 19",
    ),
    "an unfinished copy": (
        lambda two: changed(two, "INSERT INTO copy_progress VALUES ('a', 1, 1, 1)"),
        "With STOPLIST_FEEDS_URL: `stoplist copy` has not finished",
    ),
    "no Stoplist": (
        lambda two: changed(two, "ALTER TABLE deployment RENAME TO other"),
        "no Stoplist database where STOPLIST_FEEDS_URL leads",
    ),
    "another table": (lambda two: changed(two, "CREATE TABLE theirs (a TEXT)"), "theirs"),
}


def exchanged(two: Two) -> Two:
    two.split()
    return Two(two.feeds, two.accounts)


def with_feeds_of_another(two: Two) -> Two:
    return changed(two, "UPDATE deployment SET pair_id = 'another', pair_part = 'feeds'")


def changed(two: Two, statement: str) -> Two:
    run_statements(two.feeds, statement)
    return two


@pytest.mark.parametrize(("make", "text"), UNSUITABLE.values(), ids=UNSUITABLE)
def test_databases_that_are_unsuitable_are_refused(two: Two, make: Callable[[Two], Two], text: str) -> None:
    unsuitable = make(two)
    before = [rows_of(url) for url in two]
    with pytest.raises(StoplistError, match=text):
        unsuitable.split()
    assert [rows_of(url)["unsubscribes"] for url in two] == [rows["unsubscribes"] for rows in before]
    assert [rows_of(url)["people"] for url in two] == [rows["people"] for rows in before]


def test_only_an_administrator_may_split(two: Two) -> None:
    with pytest.raises(Refused, match="administrator"):
        two.split(actor=STRANGER)


# Together again


@asynccontextmanager
async def connected(two: Two) -> AsyncIterator[tuple[Any, Any]]:
    accounts, feeds = await asyncpg.connect(two.accounts), await asyncpg.connect(two.feeds)
    try:
        yield accounts, feeds
    finally:
        await accounts.close()
        await feeds.close()


def restore_feeds(two: Two) -> None:
    """Copy the rows of the feeds into the database of the accounts, as pg_dump and pg_restore do."""

    async def body() -> None:
        async with connected(two) as (accounts, feeds):
            await accounts.execute("ALTER TABLE feeds DROP CONSTRAINT feeds_are_apart")
            await copy_rows(feeds, accounts, FEED_TABLES)

    asyncio.run(body())


async def copy_rows(source: Any, target: Any, tables: Iterable[str]) -> None:
    for table in tables:
        rows = await source.fetch(f"SELECT * FROM {table}")  # noqa: S608
        await target.copy_records_to_table(table, records=rows)


def open_feed_in_older_program(two: Two) -> None:
    """Store what a server would that was started before the split, and takes the accounts for everything."""
    on_database(
        two.accounts,
        execute,
        "INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes) "
        "VALUES (17, 1, 'email', 'g', 0, 0)",
    )


def put_real_entry_into_outbox(two: Two) -> None:
    """Replace what waits in the outbox by an entry that can be moved."""
    run_statements(
        two.feeds,
        """
        UPDATE feed_outbox SET body = '{"at_ms":1,"actor_kind":"command","actor_id":"a","source_ip":null,
        "request_id":null,"action":"person.erase","target":"waiting","detail":"{}","organizations":[]}'
        """,
    )


def test_the_two_become_one_again(two: Two, original: Rows) -> None:
    """An entry that waited in the outbox of a feed is in the audit."""
    two.split()
    put_real_entry_into_outbox(two)
    restore_feeds(two)
    # As by a dump of more than the feeds.
    run_statements(two.accounts, "ALTER TABLE audit ALTER COLUMN audit_id RESTART")
    result = two.join()
    rows = comparable(two.accounts)
    (moved,) = [row for row in rows["audit"] if row[7] == "waiting"]
    assert moved[6] == "person.erase"
    for table in FEED_TABLES:
        assert rows[table] == ([] if table == "feed_outbox" else original[table]), table
    assert result.rows == sum(len(original[table]) for table in FEED_TABLES) - 1
    start_on(two.accounts)
    with pytest.raises(SettingsError, match="holds the feeds itself"):
        two.start()
    with pytest.raises(SettingsError, match="STOPLIST_FEEDS_URL"):
        start_on(two.feeds)


def test_the_two_stay_apart_while_an_entry_cannot_be_moved(two: Two) -> None:
    two.split()
    run_statements(two.feeds, "UPDATE feed_outbox SET body = 'damaged'")
    restore_feeds(two)
    with pytest.raises(Refused, match="still wait beside the feeds"):
        two.join()
    two.start()


def test_one_without_feeds_accepts_them_again(two: Two) -> None:
    """Nothing had to be copied back, so nobody has allowed feeds there."""
    two.split()
    run_statements(two.feeds, f"TRUNCATE {', '.join(FEED_TABLES)}")
    two.join()
    run_statements(two.accounts, f"INSERT INTO {A_FEED}")


def test_feeds_that_were_not_all_copied_back_are_refused(two: Two) -> None:
    """The two are a pair as before."""
    two.split()
    put_real_entry_into_outbox(two)
    restore_feeds(two)
    run_statements(two.accounts, "DELETE FROM unsubscribes WHERE seq = 7")
    with pytest.raises(Refused, match="the table unsubscribes has"):
        two.join()
    two.start()


@pytest.mark.parametrize("work", [Two.split, Two.join])
def test_a_pair_is_changed_at_the_coordinator_of_a_citus(two: Two, work: Callable[[Two], SplitResult]) -> None:
    """A worker has the tables of the feeds alone."""
    two.split()
    run_statements(
        two.feeds, *(f"DROP TABLE {table} CASCADE" for table in rows_of(two.feeds) if table not in FEED_TABLES)
    )
    with pytest.raises(SettingsError, match=r"STOPLIST_FEEDS_URL names a worker of a Citus.*name its coordinator"):
        work(two)


def test_only_a_pair_becomes_one(two: Two, original: Rows) -> None:
    """No entry is taken from the outbox of another deployment."""
    put_real_entry_into_outbox(two)
    with pytest.raises(SettingsError, match="holds the feeds itself"):
        two.join()
    assert_as_before(two, original)


# On a Citus


@pytest.fixture
def two_distributed(citus: Citus) -> Iterator[Two]:
    """Yield a filled deployment and a complete copy of its database, the feeds of both distributed."""
    two = Two(*(citus.fresh_database(name) for name in ("accounts", "feeds")))

    async def fill() -> None:
        for url in two:
            async with migrated(url, pool_size=2) as database:
                await distribute(database)
                if url == two.accounts:
                    await fill_every_table(database, FakeClock())

    async def copy(tables: Iterable[str]) -> None:
        async with connected(two) as (accounts, feeds):
            await feeds.execute("SET session_replication_role = replica")  # accepts the tables in any order
            await copy_rows(accounts, feeds, tables)

    asyncio.run(fill())
    asyncio.run(copy(rows_of(two.accounts)))
    yield two
    for url in two:
        citus.drop_database(url)


def test_distributed_feeds_are_split_and_joined(two_distributed: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after an end in between."""
    two, original = two_distributed, comparable(two_distributed.accounts)
    end_between(two, monkeypatch)
    assert_as_before(two, original)
    two.split()
    assert_split(two, original)
    with pytest.raises(StoreUnavailable, match="restart it with STOPLIST_FEEDS_URL"):
        open_feed_in_older_program(two)
    put_real_entry_into_outbox(two)
    restore_feeds(two)
    two.join()
    joined = comparable(two.accounts)
    assert {table: joined[table] for table in FEED_TABLES} == {
        table: original[table] if table != "feed_outbox" else [] for table in FEED_TABLES
    }
    start_on(two.accounts)


@pytest.mark.parametrize("work", [split_feeds, join_feeds])
@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"STOPLIST_DATABASE_URL": "postgresql://127.0.0.1/a"}, "Set STOPLIST_FEEDS_URL"),
        ({"STOPLIST_FEEDS_URL": "postgresql://127.0.0.1/a"}, "stoplist copy"),
    ],
)
def test_both_databases_are_named(work: Any, variables: dict[str, str], text: str) -> None:
    settings = load(variables, env_file=Path("absent/.env"))
    with pytest.raises(SettingsError, match=text):
        asyncio.run(work(ADMINISTRATOR, FakeClock(), settings, lambda _: None))
