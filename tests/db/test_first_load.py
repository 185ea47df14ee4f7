"""The first load of a big list goes by keys from beginning to end, though nobody has gathered statistics.

PostgreSQL plans a statement for the empty table and may keep that plan for as long as the connection lives, and it
gathers statistics a minute after the rows came, or never where autovacuum is off. It counts by itself how many rows
and entries of an index it has gone through.
"""

import asyncio
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.builders import execute
from tests.unsubscribes.partner import Organization, Sent, back, out, placed, records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("patient")]

BATCHES, BATCH = 40, 10_000
# Of every fourth batch: people who opt out once more, and people who come back.
AGAIN, BACK = 1_000, 1_000
KNOWN = BATCHES // 4 * (AGAIN + BACK)
PAGES, PAGE, LOOKED_UP = 6, 10_000, 100
TABLES = ("feeds", "unsubscribes", "unsubscribe_versions", "submissions", "feed_days")

_OTHERS = """
    SELECT COUNT(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
_SCANNED = "SELECT relname, n_tup_ins, seq_tup_read FROM pg_stat_user_tables"
_OF_INDEXES = "SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes"
_ANALYZED = "SELECT relname FROM pg_class WHERE relname = ANY($1) AND reltuples >= 0"


class Counted(NamedTuple):
    """By table or index: rows written, rows that were gone through one after the other, entries read by a key."""

    written: dict[str, int]
    scanned: dict[str, int]
    by_key: dict[str, int]
    analyzed: list[str]


def test_a_first_load_reads_no_more_than_it_is_sent(postgresql_url: str) -> None:
    """400 000 opt-outs in batches of 10 000, some people among them twice, then pages of the feed.

    No table is ever walked through, and of the keys no more is read than each batch and page asks for.
    """
    asyncio.run(_load(postgresql_url))
    counted = asyncio.run(_counted(postgresql_url))
    assert counted.analyzed == [], "nobody gathers statistics"
    assert counted.written["unsubscribes"] == BATCHES * BATCH - KNOWN
    assert [table for table in TABLES if counted.scanned[table]] == []
    # Read to decide, to keep the version before, and twice to write.
    assert KNOWN < counted.by_key["unsubscribes_pkey"] <= 4 * KNOWN + LOOKED_UP
    # A page for a group first looks how far it may go.
    assert PAGES * PAGE < counted.by_key["unsubscribes_seq"] <= 2 * PAGES * PAGE


async def _load(url: str) -> None:
    async with placed(url) as place:
        for table in TABLES:
            await execute(place.database, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        organization = await place.new_organization()
        for nth in range(BATCHES):
            answer = await organization.submit(*_batch(organization, nth), is_minimal=True)
            assert answer.outranked == 0
        await _read(organization)


async def _read(organization: Organization) -> None:
    """Pages of the feed, and one for a group, with plans for just these; and some addresses."""
    cursor = None
    for _ in range(PAGES - 1):
        page = await organization.follow(cursor, limit=PAGE)
        cursor = page.next_cursor
        assert len(records(page)) == PAGE
    page = await organization.follow(limit=PAGE, group_id=organization.default_group)
    assert len(records(page)) == PAGE
    page = await organization.look_up(*(_address(person) for person in range(LOOKED_UP)))
    assert len(records(page)) == LOOKED_UP


def _batch(organization: Organization, nth: int) -> list[Sent]:
    known = AGAIN + BACK if nth % 4 == 3 else 0
    at = organization.place.ago((BATCHES - nth) * 1_000)
    new = [out(_address(nth * BATCH + person), at) for person in range(BATCH - known)]
    earlier = [_address((nth - 1) * BATCH + person) for person in range(known)]
    return [*new, *(out(address, at) for address in earlier[:AGAIN]), *(back(one, at) for one in earlier[AGAIN:])]


def _address(person: int) -> str:
    # In the order of no index.
    return f"p{person * 7_919 % 1_000_003}@example.org"


async def _counted(url: str) -> Counted:
    """What PostgreSQL counted, when all connections of the deployment are gone and have handed in their counts."""
    connection: Any = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(60):
            while await connection.fetchval(_OTHERS):
                pass
        tables, indexes = await connection.fetch(_SCANNED), await connection.fetch(_OF_INDEXES)
        analyzed = await connection.fetch(_ANALYZED, TABLES)
    finally:
        await connection.close()
    return Counted(
        {row["relname"]: row["n_tup_ins"] for row in tables},
        {row["relname"]: row["seq_tup_read"] for row in tables},
        {row["indexrelname"]: row["idx_tup_read"] for row in indexes},
        [row["relname"] for row in analyzed],
    )
