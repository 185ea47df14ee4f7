"""A program uses one whole database, or two that belong together, and says of all others what is wrong.

Source: docs/interface.md section D1, Feeds apart.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from stoplist import __version__
from stoplist.databases import pair
from stoplist.databases.opening import check_databases, joined, migrate_databases
from stoplist.db import Database, schema
from stoplist.db.split import SplitDatabase
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import NEWEST, execute, migrate_to, on_database, opened, value
from tests.deployment import in_own_loop
from tests.services.postgresql import PostgresqlServer

INSERT_FEED = (
    "INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes) "
    "VALUES (17, 1, 'email', 'g', 0, 0)"
)
INSERT_ORGANIZATION = "INSERT INTO organizations (slug, name, created_ms) VALUES ('a', 'A', 0)"
# The last migration has been applied all the same, so a second time it fails.
OLDER_SCHEMA = f"UPDATE deployment SET schema_version = {NEWEST - 1}"  # noqa: S608 - a number
KNOWS_NO_PAIRS = (
    "ALTER TABLE deployment DROP COLUMN pair_id, DROP COLUMN pair_part; UPDATE deployment SET schema_version = 19"
)


class Urls(NamedTuple):
    """The URLs of two databases with the schema."""

    accounts: str
    feeds: str


@pytest.fixture
def urls(postgresql: PostgresqlServer, migrated_template: str) -> Iterator[Urls]:
    both = Urls(*(postgresql.fresh_database(name, template=migrated_template) for name in ("accounts", "feeds")))
    yield both
    for url in both:
        postgresql.drop_database(url)


@pytest.fixture(scope="module")
def migrated_template(postgresql: PostgresqlServer) -> Iterator[str]:
    """Yield the name of a migrated database to which nothing is connected."""
    url = postgresql.fresh_database("template")
    on_database(url, migrate_to, NEWEST)
    yield url.rsplit("/", 1)[1]
    postgresql.drop_database(url)


@asynccontextmanager
async def both(urls: Urls) -> AsyncIterator[SplitDatabase]:
    async with opened(urls.accounts, pool_size=2) as accounts, opened(urls.feeds, pool_size=2) as feeds:
        yield joined(accounts, feeds)


async def make_pair(database: Database, environment: str = "development") -> None:
    await migrate_databases(database, environment=environment, now_ms=0)


async def places(database: SplitDatabase) -> list[tuple[str | None, str | None]]:
    found = [
        [await value(one, f"SELECT {column} FROM deployment") for column in ("pair_id", "pair_part")]  # noqa: S608
        for one in (database.accounts, database.feeds)
    ]
    return [(pair_id, part) for pair_id, part in found]


async def refusal(database: Database, text: str) -> None:
    """Assert that neither a server nor `migrate` accepts what is open, and that both say this."""
    for attempt in (check_databases(database, environment="development"), make_pair(database)):
        with pytest.raises(SettingsError, match=text):
            await attempt


@in_own_loop
async def test_two_new_databases_become_a_pair(urls: Urls) -> None:
    """A second time nothing changes. From then on no older program may run: it would look for feeds elsewhere."""
    async with both(urls) as database:
        await make_pair(database)
        first = await places(database)
        assert [part for _, part in first] == ["accounts", "feeds"]
        assert first[0][0] == first[1][0]
        await make_pair(database)
        assert await places(database) == first
        deployment = await check_databases(database, environment="development")
        assert deployment is not None
        assert deployment.oldest_program == __version__
        of_feeds = await schema.read(database.feeds)
        assert of_feeds is not None
        assert of_feeds.oldest_program == __version__


@in_own_loop
async def test_of_two_attempts_at_once_both_make_the_pair_of_the_first(
    urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one saw two new databases, and overtakes the first one between its changes of the two."""
    async with both(urls) as database:
        seen = await pair.require_joinable(database)

        async def see_as_before(_: SplitDatabase) -> tuple[pair.Place, pair.Place]:
            return seen

        change_feeds = database.feeds.under_schema_lock

        async def be_overtaken(change: Any) -> None:
            monkeypatch.undo()
            await change_feeds(change)
            with monkeypatch.context() as patch:
                patch.setattr(pair, "require_joinable", see_as_before)
                await pair.join(database)

        monkeypatch.setattr(database.feeds, "under_schema_lock", be_overtaken)
        await pair.join(database)
        pair.require_same(*await pair.require_joinable(database))


@in_own_loop
async def test_an_attempt_that_ended_between_the_two_is_gone_on_with(urls: Urls) -> None:
    async with both(urls) as database:
        await make_pair(database)
        before = await places(database)
        await execute(database.accounts, "UPDATE deployment SET pair_part = NULL")
        await make_pair(database)
        assert await places(database) == before


@pytest.mark.parametrize(
    ("part", "statement", "refused"),
    [
        ("accounts", INSERT_FEED, "23514.*restart it with STOPLIST_FEEDS_URL"),
        ("feeds", INSERT_ORGANIZATION, "23514.*STOPLIST_DATABASE_URL to the database of the accounts"),
    ],
)
@in_own_loop
async def test_a_program_started_before_stores_nothing_elsewhere(
    urls: Urls, part: str, statement: str, refused: str
) -> None:
    """It took the database for a whole deployment, and says that it must be restarted: 503, and in the log."""
    async with both(urls) as database, opened(getattr(urls, part), pool_size=2) as of_older_program:
        await make_pair(database)
        with pytest.raises(StoreUnavailable, match=refused):
            await execute(of_older_program, statement)


@in_own_loop
async def test_one_of_a_pair_alone_is_refused(urls: Urls) -> None:
    """It would answer that nobody opted out, and store what arrives where nobody looks."""
    async with both(urls) as database:
        await make_pair(database)
        await refusal(database.accounts, "set STOPLIST_FEEDS_URL")
        await refusal(database.feeds, "STOPLIST_DATABASE_URL names the database of a deployment's feeds")
        await refusal(joined(database.feeds, database.accounts), "exchanged")


@in_own_loop
async def test_halves_of_two_pairs_are_refused(urls: Urls) -> None:
    async with both(urls) as database:
        await make_pair(database)
        await execute(database.feeds, "UPDATE deployment SET pair_id = 'another'")
        await refusal(database, "do not belong together")


@pytest.mark.parametrize(
    ("part", "statement", "text"),
    [
        ("accounts", INSERT_FEED, "holds the feeds itself"),
        ("feeds", INSERT_ORGANIZATION, "database of another deployment"),
        ("feeds", "UPDATE deployment SET pair_id = 'p', pair_part = 'feeds'", "database of another deployment"),
        ("feeds", INSERT_FEED, "holds feeds already"),
    ],
)
@in_own_loop
async def test_databases_in_use_do_not_become_a_pair(urls: Urls, part: str, statement: str, text: str) -> None:
    async with both(urls) as database:
        await execute(getattr(database, part), statement)
        before = await places(database)
        with pytest.raises(SettingsError, match=text):
            await make_pair(database)
        assert await places(database) == before


@pytest.mark.parametrize(
    ("accounts", "feeds", "text"),
    [
        ("", INSERT_ORGANIZATION, "database of another deployment"),
        ("", f"{INSERT_ORGANIZATION}; {KNOWS_NO_PAIRS}", "database of another deployment"),
        ("", "UPDATE deployment SET pair_id = 'p', pair_part = 'feeds'", "database of another deployment"),
        ("", INSERT_FEED, "holds feeds already"),
        ("", "UPDATE deployment SET environment = 'production'", "With STOPLIST_FEEDS_URL: This database belongs to"),
        ("", "DELETE FROM deployment", "an empty one with STOPLIST_FEEDS_URL"),
        (INSERT_FEED, "", "holds the feeds itself"),
        (f"{INSERT_FEED}; {KNOWS_NO_PAIRS}", "", "holds the feeds itself"),
        ("UPDATE deployment SET pair_id = 'p', pair_part = 'feeds'", "", "holds the feeds itself"),
    ],
)
@in_own_loop
async def test_a_strange_database_is_refused_before_either_is_migrated(
    urls: Urls, accounts: str, feeds: str, text: str
) -> None:
    """It may belong to a deployment of an older release, which goes on with its own schema."""
    async with both(urls) as database:
        for one, statements in ((database.accounts, accounts), (database.feeds, feeds)):
            for statement in filter(None, (OLDER_SCHEMA, *statements.split("; "))):
                await execute(one, statement)
        with pytest.raises(SettingsError, match=text):
            await make_pair(database)


@pytest.mark.parametrize("part", ["accounts", "feeds"])
@in_own_loop
async def test_one_of_a_pair_alone_is_not_migrated(urls: Urls, part: str) -> None:
    async with both(urls) as database:
        await make_pair(database)
        one = getattr(database, part)
        await execute(one, OLDER_SCHEMA)
        with pytest.raises(SettingsError, match="STOPLIST_FEEDS_URL"):
            await make_pair(one)


@in_own_loop
async def test_one_database_is_no_pair(urls: Urls) -> None:
    """By whatever names it is reached."""
    async with both(urls._replace(feeds=urls.accounts)) as database:
        with pytest.raises(SettingsError, match="name the same database"):
            await make_pair(database)
        assert await places(database) == [(None, None)] * 2


@in_own_loop
async def test_two_whole_databases_are_no_pair(urls: Urls) -> None:
    """`migrate` makes them one; a server does not."""
    async with both(urls) as database:
        with pytest.raises(SettingsError, match="stoplist migrate"):
            await check_databases(database, environment="development")


@in_own_loop
async def test_both_are_of_one_environment(urls: Urls) -> None:
    async with both(urls) as database:
        await make_pair(database)
        await execute(database.feeds, "UPDATE deployment SET environment = 'production'")
        with pytest.raises(SettingsError, match="With STOPLIST_FEEDS_URL: This database belongs to the production"):
            await check_databases(database, environment="development")


@in_own_loop
async def test_a_database_of_feeds_without_a_schema_is_named(urls: Urls, postgresql: PostgresqlServer) -> None:
    empty = postgresql.fresh_database("empty")
    try:
        async with both(urls) as database, opened(empty, pool_size=2) as feeds:
            with pytest.raises(SettingsError, match="where STOPLIST_FEEDS_URL leads"):
                await check_databases(joined(database.accounts, feeds), environment="development")
    finally:
        postgresql.drop_database(empty)


@in_own_loop
async def test_feeds_of_an_older_program_get_their_owner(urls: Urls) -> None:
    """They carry no id yet, which counts as that of a stranger."""
    async with both(urls) as database:
        await make_pair(database)
        await execute(database.accounts, INSERT_ORGANIZATION)
        await execute(database.feeds, INSERT_FEED)
        await check_databases(database, environment="development")
        assert database.foreign_feeds == {17}
        await make_pair(database)
        await check_databases(database, environment="development")
        assert database.foreign_feeds == frozenset()
