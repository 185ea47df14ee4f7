"""`migrate --distribute` calls Citus once, under the lock of migrations.

Stand-ins record the calls, because Citus is installed on few machines; test_citus.py runs there. test_shardable.py
shows that Citus would accept the tables and the statements. Source: docs/interface.md section D1, Sharding.
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
    "imports feed_id feeds",
    "import_parts feed_id feeds",
    "uploads feed_id feeds",
    "upload_pieces feed_id feeds",
    "import_rejects feed_id feeds",
    "import_work feed_id feeds",
    "feed_followers feed_id feeds",
    "feed_positions feed_id feeds",
    "erasures feed_id feeds",
    "feed_outbox feed_id feeds",
    "confirmed_ranges feed_id feeds",
]
CLEARED = [f"truncate {call.split()[0]}" for call in CALLS]


@on_postgresql
async def test_the_feed_tables_are_distributed_together(database: Database) -> None:
    """One transaction distributes them by feed_id, co-located with feeds; another truncates their local rows."""
    await citus.install(database)
    assert await distribute(database) == DistributionResult(FEED_TABLES)
    calls = await citus.recorded_calls(database)
    assert [what for what, _ in calls] == CALLS + CLEARED
    count = len(FEED_TABLES)
    first, second = ({xid for _, xid in part} for part in (calls[:count], calls[count:]))
    assert len(first) == len(second) == 1
    assert first != second


@on_postgresql
async def test_a_second_run_distributes_nothing(database: Database) -> None:
    """It repeats the truncation of local rows, which the first run may not have reached."""
    await citus.install(database)
    await distribute(database)
    before = await citus.recorded_calls(database)
    assert await distribute(database) == DistributionResult(())
    assert [what for what, _ in (await citus.recorded_calls(database))[len(before) :]] == CLEARED


@on_postgresql
async def test_only_missing_tables_are_distributed(database: Database) -> None:
    """A release with one more feed table needs this."""
    await citus.install(database)
    await distribute(database)
    await execute(database, "DELETE FROM pg_dist_partition WHERE logicalrelid = CAST('feed_days' AS regclass)")
    await execute(database, "DELETE FROM recorded")
    assert await distribute(database) == DistributionResult(("feed_days",))
    assert (await citus.recorded_calls(database))[0][0] == "feed_days feed_id feeds"


@pytest.mark.parametrize(
    "otherwise",
    [
        "INSERT INTO pg_dist_partition VALUES ('unsubscribes', 'h', 'address', 3)",
        "INSERT INTO pg_dist_partition VALUES ('feeds', 'h', 'feed_id', 3), ('feed_days', 'h', 'feed_id', 4)",
    ],
)
def test_tables_that_are_not_co_located_are_refused(postgresql_url: str, otherwise: str) -> None:
    """Distributed by hand, some with others or by another column: a feed would be on two nodes. Nothing is done."""

    @on_postgresql
    async def body(database: Database) -> None:
        await citus.install(database)
        await execute(database, otherwise)
        with pytest.raises(SettingsError, match="undistribute_table"):
            await distribute(database)
        assert await citus.recorded_calls(database) == []

    body(postgresql_url=postgresql_url)


@on_postgresql
async def test_local_tables_in_the_catalogue_are_not_distributed(database: Database) -> None:
    """Citus lists them too, with another method."""
    await citus.install(database)
    await execute(database, "INSERT INTO pg_dist_partition VALUES ('feeds', 'n', NULL, 0)")
    assert await distribute(database) == DistributionResult(FEED_TABLES)


@on_postgresql
async def test_a_failure_leaves_no_table_distributed(database: Database) -> None:
    """Here a worker is unreachable at the last table."""
    await citus.install(database)
    await execute(database, "ALTER TABLE recorded ADD CHECK (what NOT LIKE 'feed_days%')")
    with pytest.raises(SettingsError, match=r"CheckViolationError, SQLSTATE 23514.*nothing was changed"):
        await distribute(database)
    assert await citus.recorded_calls(database) == []


def test_concurrent_runs_take_turns(postgresql_url: str) -> None:
    """The second waits for the lock of migrations and finds everything done."""

    async def body() -> list[DistributionResult]:
        async with opened(postgresql_url) as one, opened(postgresql_url) as other:
            return list(await asyncio.gather(distribute(one), distribute(other)))

    @on_postgresql
    async def prepare(database: Database) -> None:
        await citus.install(database)

    prepare(postgresql_url=postgresql_url)
    assert sorted(len(done.tables) for done in asyncio.run(body())) == [0, len(FEED_TABLES)]


@on_postgresql
async def test_without_citus_the_error_names_the_remedy(database: Database) -> None:
    """Nothing is done."""
    with pytest.raises(SettingsError, match="CREATE EXTENSION citus"):
        await require_citus(database)
    with pytest.raises(SettingsError, match="CREATE EXTENSION citus"):
        await distribute(database)


def test_on_sqlite_the_error_names_the_remedy() -> None:
    """The error comes before a file is created."""
    with pytest.raises(SettingsError, match="`stoplist copy`"):
        require_postgresql("sqlite:///stoplist.db")
    require_postgresql("postgresql://localhost/stoplist")
