"""The first load of a big list uses the keys from beginning to end, without gathered statistics.

PostgreSQL plans a statement for the empty table and may keep that plan for the life of the connection. It gathers
statistics a minute after the rows were added, or never without autovacuum. Its own counters tell how many rows and
index entries it has read.
"""

import asyncio
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.builders import execute
from tests.unsubscribes.partner import Organization, Sent, back, opt_out_deployment, out, records

pytestmark = pytest.mark.slow

BATCHES, BATCH = 8, 10_000
# In every fourth batch: people who opt out again, and people who opt in again.
AGAIN, BACK = 1_000, 1_000
REPEATED = BATCHES // 4 * (AGAIN + BACK)
PAGES, PAGE, LOOKED_UP = 6, 10_000, 100
TABLES = ("feeds", "unsubscribes", "unsubscribe_versions", "submissions", "feed_days")

_OTHER_CONNECTIONS = """
    SELECT COUNT(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
_TABLE_READS = "SELECT relname, n_tup_ins, seq_tup_read FROM pg_stat_user_tables"
_INDEX_READS = "SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes"
_ANALYZED = "SELECT relname FROM pg_class WHERE relname = ANY($1) AND reltuples >= 0"


class ReadCounts(NamedTuple):
    """Counts by table or index: rows written, rows read sequentially, entries read by a key."""

    written: dict[str, int]
    scanned: dict[str, int]
    by_key: dict[str, int]
    analyzed: list[str]


def test_a_first_load_reads_no_more_than_it_is_sent(postgresql_url: str) -> None:
    """80 000 opt-outs in batches of 10 000, some people among them twice, then pages of the feed.

    No table is ever scanned, and no more keys are read than each batch and page needs.
    """
    asyncio.run(_load(postgresql_url))
    counted = asyncio.run(_read_counts(postgresql_url))
    assert counted.analyzed == [], "nobody gathers statistics"
    assert counted.written["unsubscribes"] == BATCHES * BATCH - REPEATED
    assert [table for table in TABLES if counted.scanned[table]] == []
    # Each is read to decide, to keep the previous version, and twice to write.
    assert REPEATED < counted.by_key["unsubscribes_pkey"] <= 4 * REPEATED + LOOKED_UP
    # A page for a group first determines how far it may go.
    assert PAGES * PAGE < counted.by_key["unsubscribes_seq"] <= 2 * PAGES * PAGE


async def _load(url: str) -> None:
    async with opt_out_deployment(url) as deployment:
        for table in TABLES:
            await execute(deployment.database, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        organization = await deployment.new_organization()
        for number in range(BATCHES):
            answer = await organization.submit(*_batch(organization, number), is_minimal=True)
            assert answer.outranked == 0
        await _read_feed(organization)


async def _read_feed(organization: Organization) -> None:
    """Read pages of the feed and one for a group, with plans for these values, and look up some addresses."""
    cursor = None
    for _ in range(PAGES - 1):
        page = await organization.follow(cursor, limit=PAGE)
        cursor = page.next_cursor
        assert len(records(page)) == PAGE
    page = await organization.follow(limit=PAGE, group_id=organization.default_group)
    assert len(records(page)) == PAGE
    page = await organization.look_up(*(_address(person) for person in range(LOOKED_UP)))
    assert len(records(page)) == LOOKED_UP


def _batch(organization: Organization, number: int) -> list[Sent]:
    known = AGAIN + BACK if number % 4 == 3 else 0
    at = organization.deployment.ago((BATCHES - number) * 1_000)
    new = [out(_address(number * BATCH + person), at) for person in range(BATCH - known)]
    earlier = [_address((number - 1) * BATCH + person) for person in range(known)]
    return [*new, *(out(address, at) for address in earlier[:AGAIN]), *(back(one, at) for one in earlier[AGAIN:])]


def _address(person: int) -> str:
    # Not in the order of any index.
    return f"p{person * 7_919 % 1_000_003}@example.org"


async def _read_counts(url: str) -> ReadCounts:
    """Return PostgreSQL's counters, once all connections of the deployment have closed and reported theirs."""
    connection: Any = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(60):
            while await connection.fetchval(_OTHER_CONNECTIONS):
                pass
        tables, indexes = await connection.fetch(_TABLE_READS), await connection.fetch(_INDEX_READS)
        analyzed = await connection.fetch(_ANALYZED, TABLES)
    finally:
        await connection.close()
    return ReadCounts(
        {row["relname"]: row["n_tup_ins"] for row in tables},
        {row["relname"]: row["seq_tup_read"] for row in tables},
        {row["indexrelname"]: row["idx_tup_read"] for row in indexes},
        [row["relname"] for row in analyzed],
    )
