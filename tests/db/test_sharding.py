"""`migrate --distribute`: what is asked of Citus, once, under the lock of migrations.

Citus itself cannot be installed here: stand-ins record the calls. That the tables and the statements are such as it
takes is shown in test_shardable.py. Source: docs/interface.md section D1, Sharding.
"""

import asyncio

import pytest

from stoplist.db import Database
from stoplist.db.sharding import FEED_TABLES, DistributionResult, distribute, require_citus, require_postgresql
from stoplist.errors import SettingsError
from tests.builders import execute, on_postgresql, opened
from tests.db import citus

CALLS = [
    "feeds feed_id none",
    "unsubscribes feed_id feeds",
    "unsubscribe_versions feed_id feeds",
    "submissions feed_id feeds",
    "feed_days feed_id feeds",
    "reversals feed_id feeds",
]
CLEARED = [f"truncate {call.split()[0]}" for call in CALLS]


@on_postgresql
async def test_the_tables_of_the_feeds_are_distributed_together(database: Database) -> None:
    """By feed_id, in one transaction, the others with the feeds; then their old rows are let go of in another."""
    await citus.install(database)
    assert await distribute(database) == DistributionResult(FEED_TABLES)
    asked = await citus.asked(database)
    assert [what for what, _ in asked] == CALLS + CLEARED
    count = len(FEED_TABLES)
    first, second = ({xid for _, xid in part} for part in (asked[:count], asked[count:]))
    assert len(first) == len(second) == 1
    assert first != second


@on_postgresql
async def test_a_second_time_there_is_nothing_to_distribute(database: Database) -> None:
    """What the first run may not have come to is done: to let go of the old rows."""
    await citus.install(database)
    await distribute(database)
    before = await citus.asked(database)
    assert await distribute(database) == DistributionResult(())
    assert [what for what, _ in (await citus.asked(database))[len(before) :]] == CLEARED


@on_postgresql
async def test_what_is_missing_is_added_to_what_is_there(database: Database) -> None:
    """As after a release with one more table of feeds."""
    await citus.install(database)
    await distribute(database)
    await execute(database, "DELETE FROM pg_dist_partition WHERE logicalrelid = CAST('feed_days' AS regclass)")
    await execute(database, "DELETE FROM asked")
    assert await distribute(database) == DistributionResult(("feed_days",))
    assert (await citus.asked(database))[0][0] == "feed_days feed_id feeds"


@pytest.mark.parametrize(
    "otherwise",
    [
        "INSERT INTO pg_dist_partition VALUES ('unsubscribes', 'h', 'address', 3)",
        "INSERT INTO pg_dist_partition VALUES ('feeds', 'h', 'feed_id', 3), ('feed_days', 'h', 'feed_id', 4)",
    ],
)
def test_tables_that_lie_apart_are_refused(postgresql_url: str, otherwise: str) -> None:
    """Distributed by hand, some with others or by another column: a feed would lie on two nodes. Nothing is done."""

    @on_postgresql
    async def body(database: Database) -> None:
        await citus.install(database)
        await execute(database, otherwise)
        with pytest.raises(SettingsError, match="undistribute_table"):
            await distribute(database)
        assert await citus.asked(database) == []

    body(postgresql_url=postgresql_url)


@on_postgresql
async def test_local_tables_that_citus_knows_of_are_not_distributed_yet(database: Database) -> None:
    """It lists them too, with another method."""
    await citus.install(database)
    await execute(database, "INSERT INTO pg_dist_partition VALUES ('feeds', 'n', NULL, 0)")
    assert await distribute(database) == DistributionResult(FEED_TABLES)


@on_postgresql
async def test_one_that_fails_leaves_none_distributed(database: Database) -> None:
    """A worker that is away, say, at the last of them."""
    await citus.install(database)
    await execute(database, "ALTER TABLE asked ADD CHECK (what NOT LIKE 'feed_days%')")
    with pytest.raises(SettingsError, match=r"CheckViolationError, SQLSTATE 23514.*nothing was changed"):
        await distribute(database)
    assert await citus.asked(database) == []


def test_two_at_once_take_turns(postgresql_url: str) -> None:
    """The second finds all done: it waits for the lock of migrations."""

    async def body() -> list[DistributionResult]:
        async with opened(postgresql_url) as one, opened(postgresql_url) as other:
            return list(await asyncio.gather(distribute(one), distribute(other)))

    @on_postgresql
    async def prepare(database: Database) -> None:
        await citus.install(database)

    prepare(postgresql_url=postgresql_url)
    assert sorted(len(done.tables) for done in asyncio.run(body())) == [0, len(FEED_TABLES)]


@on_postgresql
async def test_without_citus_the_remedy_is_told(database: Database) -> None:
    """And nothing is done."""
    with pytest.raises(SettingsError, match="CREATE EXTENSION citus"):
        await require_citus(database)
    with pytest.raises(SettingsError, match="CREATE EXTENSION citus"):
        await distribute(database)


def test_on_sqlite_the_remedy_is_told() -> None:
    """Before a file would be made."""
    with pytest.raises(SettingsError, match="`stoplist copy`"):
        require_postgresql("sqlite:///stoplist.db")
    require_postgresql("postgresql://localhost/stoplist")
