"""A feed that hangs, as behind a frozen node or a lock that never ends, delays neither tokens nor other feeds.

Source: docs/interface.md section D1, Sharding; docs/decisions/0018-hanging-feeds.md.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stoplist.db import Database, feed_breaker, feed_connections, pools, postgresql_transactions
from stoplist.db.query import Query
from stoplist.errors import StoreUnavailable
from tests.builders import execute, migrated, sql
from tests.db.failing_databases import PID, wait_until_answered
from tests.db.unit_fixture import HEAVY, OtherProcess, another_process, let_units_queue
from tests.services.proxy import Proxy

pytestmark = pytest.mark.usefixtures("quick_probes")

POOL = 16  # 8 for reads and tokens, 4 of these for feeds, 2 for one feed
ALL_FEEDS, ONE_FEED = 4, 2
FROZEN, HEALTHY = 0x0102030405060718, 32
HANGING = range(1, 21)

FEED = sql("SELECT head_seq FROM feeds WHERE feed_id = :feed_id")
MANY_FEEDS = sql("SELECT COUNT(*) AS count FROM feeds WHERE feed_id > 0")
LOCK = sql("UPDATE feeds SET writes = writes + 1 WHERE feed_id = :feed_id")
# Waits for another process in the way that a statement waits for a frozen node.
HANGS = sql("SELECT pg_advisory_xact_lock(7), CAST(:feed_id AS BIGINT) AS feed_id")
OPEN = """INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)
    SELECT number, 1, 'email', 'g', 0, 0 FROM generate_series(1, 40) number
    UNION ALL SELECT 72623859790382872, 1, 'email', 'g', 0, 0"""

ShortTimeouts = Callable[[], Any]


@asynccontextmanager
async def with_feeds(url: str) -> AsyncIterator[Database]:
    """Open a database with some feeds."""
    async with migrated(url, pool_size=POOL) as database:
        await execute(database, OPEN)
        yield database


def read(database: Database, feed_id: int, query: Query = FEED) -> "asyncio.Task[Any]":
    """Start a read of a feed."""
    return asyncio.ensure_future(database.one(query, feed_id=feed_id))


def write(database: Database, feed_id: int, *, rows: int = 1) -> "asyncio.Task[Any]":
    """Start a write of a feed."""
    return asyncio.ensure_future(
        database.write(lambda transaction: transaction.run(LOCK, feed_id=feed_id), queue_key=feed_id, rows=rows)
    )


async def assert_others_are_served(database: Database) -> None:
    """Assert that tokens and another feed are read and written, more of them at once than there are connections."""
    asks: list[Awaitable[Any]] = []
    for _ in range(POOL):
        asks += [database.one(PID), database.write(lambda transaction: transaction.one(PID)), database.write_one(PID)]
        asks += [read(database, HEALTHY), write(database, HEALTHY), write(database, HEALTHY, rows=HEAVY)]
        asks += [database.one_large(FEED, feed_id=HEALTHY), database.all(MANY_FEEDS)]
    await asyncio.gather(*asks)


async def assert_refused_at_once(refused: "asyncio.Task[Any]") -> None:
    await let_units_queue()
    assert refused.done()
    with pytest.raises(StoreUnavailable, match="did not answer for this feed") as refusal:
        refused.result()
    assert not refusal.value.is_uncertain


def test_a_frozen_feed_is_refused_at_once_until_it_answers(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads and writes that name it are held back before the database, as by a frozen node."""

    async def body() -> None:
        async with with_feeds(between.url(postgresql_url)) as database:
            await assert_others_are_served(database)
            between.hold_requests_with(struct.pack(">q", FROZEN))
            hanging = [read(database, FROZEN) for _ in range(50)]
            hanging += [asyncio.ensure_future(database.one_large(FEED, feed_id=FROZEN)) for _ in range(5)]
            hanging += [write(database, FROZEN, rows=rows) for rows in (1, HEAVY, 1, HEAVY)]
            await let_units_queue()
            await assert_others_are_served(database)
            assert {type(it) for it in await asyncio.gather(*hanging, return_exceptions=True)} == {StoreUnavailable}
            await assert_refused_at_once(read(database, FROZEN))
            await assert_refused_at_once(write(database, FROZEN))
            await assert_others_are_served(database)
            between.release()
            await wait_until_answered(lambda: read(database, FROZEN))
            await wait_until_answered(lambda: write(database, FROZEN))

    # The timeout of a statement is fixed when the database is opened.
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(feed_breaker, "PROBE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(pools, "SETTLE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(postgresql_transactions, "SETTLE_TIMEOUT_S", 0.1)
    with Proxy(postgresql_url) as between:
        asyncio.run(body())


def test_a_feed_locked_for_ever_is_refused_at_once(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writers are; its readers wait for no lock."""

    async def body() -> None:
        async with with_feeds(postgresql_url) as database, another_process(postgresql_url) as other:
            await other.connection.execute("BEGIN")
            await other.connection.execute("SELECT 1 FROM feeds WHERE feed_id = $1 FOR UPDATE", FROZEN)
            with monkeypatch.context() as patch:
                patch.setattr(postgresql_transactions, "LOCK_TIMEOUT_S", 0.05)
                hanging = [write(database, FROZEN, rows=rows) for rows in (1, HEAVY, 1, HEAVY)]
                answers = await asyncio.gather(*hanging, return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreUnavailable}
            await assert_refused_at_once(write(database, FROZEN, rows=HEAVY))
            assert database.counts.hanging_feeds == 1
            await read(database, FROZEN)
            await assert_others_are_served(database)
            await other.release()
            await wait_until_answered(lambda: write(database, FROZEN))
            assert database.counts.hanging_feeds == 0

    asyncio.run(body())


def test_readers_of_feeds_hold_a_part_of_the_connections(postgresql_url: str) -> None:
    """One feed a quarter of those for reads and tokens, all feeds half of them."""

    async def body() -> None:
        async with with_feeds(postgresql_url) as database, another_process(postgresql_url) as other:
            async with hanging_reads(database, other, [1]) as reads:
                await assert_blocked(other, ONE_FEED)
                await assert_others_are_served(database)
                assert not any(it.done() for it in reads)
            async with hanging_reads(database, other, HANGING):
                await assert_blocked(other, ALL_FEEDS)
                await asyncio.gather(*(database.one(PID) for _ in range(POOL)))
            assert await database.one(FEED, feed_id=1) is not None

    asyncio.run(body())


def test_an_old_read_gives_way_to_another_feed(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen node with many feeds would hold all connections for feeds. Each feed can do that once."""
    monkeypatch.setattr(feed_connections, "GIVE_WAY_S", 0.0)

    async def body() -> None:
        async with (
            with_feeds(postgresql_url) as database,
            another_process(postgresql_url) as other,
            hanging_reads(database, other, [1, 2]) as reads,
        ):
            await assert_blocked(other, ALL_FEEDS)
            assert await read(database, HEALTHY) is not None
            ended = [it for it in reads if it.done()]
            assert ended
            assert {type(it.exception()) for it in ended} == {StoreUnavailable}

    asyncio.run(body())


@asynccontextmanager
async def hanging_reads(
    database: Database, other: OtherProcess, feed_ids: "list[int] | range"
) -> "AsyncIterator[list[asyncio.Task[Any]]]":
    """Start twenty reads of each feed, which hang until the end of the context."""
    await other.connection.execute("SELECT pg_advisory_lock(7)")
    reads = [read(database, feed_id, HANGS) for feed_id in feed_ids for _ in range(20)]
    yield reads
    await other.connection.execute("SELECT pg_advisory_unlock(7)")
    await asyncio.gather(*reads, return_exceptions=True)


async def assert_blocked(other: OtherProcess, count: int) -> None:
    """Assert that so many connections wait, and not one more."""
    await other.wait_for_blocked(count)
    await let_units_queue()
    assert await other.count_blocked() == count
