"""No transaction touches two feeds, and no transaction of a request touches a feed and another table.

So a single shard can run it when the feeds are distributed. Every operation on opt-outs runs through a driver that
records what each unit of work asks. Source: docs/interface.md section D1, Sharding.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from stoplist.db import ALL_FEEDS, Database, Row, Transaction, Unit
from stoplist.db.query import Query
from stoplist.db.sharding import FEED_TABLES
from stoplist.maintenance.after_restore import after_restore
from stoplist.unsubscribes.changed_addresses import find_changed_addresses
from tests.builders import ADMINISTRATOR, Apart, migrated
from tests.fakes import FakeClock
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out

T = TypeVar("T")
_TABLE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+([a-z_]+)")


class RecordedUnit(NamedTuple):
    """One unit of work: its queue, the feeds that it named, and the tables."""

    queue_key: int | None
    feeds: frozenset[int]
    tables: frozenset[str]
    names: tuple[str, ...]

    @property
    def is_about_feeds(self) -> bool:
        return bool(self.tables & set(FEED_TABLES))


class Recorder:
    """A database that records what each unit of work asks, and passes everything else to the real one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.units: list[RecordedUnit] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(
        self, unit: Unit[T], *, queue_key: int | None = None, feed_id: int | None = None, rows: int = 1
    ) -> T:
        async def written_down(transaction: Transaction) -> T:
            listening = _Listening(transaction)
            try:
                return await unit(listening)
            finally:
                self._note(queue_key, listening.heard)

        return await self._database.write(written_down, queue_key=queue_key, feed_id=feed_id, rows=rows)

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        self._note(None, [(query, values)])
        return await self._database.write_one(query, **values)

    def _note(self, queue_key: int | None, heard: list[tuple[Query, dict[str, Any]]]) -> None:
        feeds = frozenset(values["feed_id"] for _, values in heard if "feed_id" in values)
        tables = frozenset(table for query, _ in heard for table in _TABLE.findall(query.postgresql))
        self.units.append(RecordedUnit(queue_key, feeds, tables, tuple(query.name for query, _ in heard)))


class _Listening:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.outbox_feed_id = transaction.outbox_feed_id
        self.heard: list[tuple[Query, dict[str, Any]]] = []

    async def one(self, query: Query, **values: Any) -> Row | None:
        self.heard.append((query, values))
        return await self._transaction.one(query, **values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        self.heard.append((query, values))
        return await self._transaction.all(query, **values)

    async def run(self, query: Query, **values: Any) -> int:
        self.heard.append((query, values))
        return await self._transaction.run(query, **values)

    async def pause(self) -> None:
        await self._transaction.pause()


@asynccontextmanager
async def recorded(database_url: str) -> AsyncIterator[tuple[OptOutDeployment, Recorder]]:
    async with migrated(database_url) as database:
        recorder: Any = Recorder(database)
        yield OptOutDeployment(recorder, FakeClock()), recorder


async def work(one: Organization) -> None:
    """Do everything that a partner can do to opt-outs, on two channels.

    Also submit twice at once, so that one submission must decide again.
    """
    deployment = one.deployment
    ago = deployment.ago
    for each in (one, one.on("sms")):
        a, b, c = [f"+4930901820{n}" if each.channel == "sms" else f"{n}@example.org" for n in range(3)]
        await each.follow()
        await each.submit(out(a, ago(9_000)), out(b, ago(9_000)))
        await each.submit(out(a, ago(9_000)), out(b, ago(9_000)))
        await each.submit(back(a, ago(8_000)), out(a, ago(7_000)), back(b, ago(8_000)), out(c, ago(7_500)))
        await each.submit(out(a, ago(6_000)), all_groups=True)
        await each.submit(out("nonsense"), out(b, ago(5_000)), is_lenient=True)
        both = [each.submit(back(b, ago(4_000 - n)), out(c, ago(4_000 - n))) for n in range(3)]
        await asyncio.gather(*both)
        deployment.clock.advance(60)
        await each.submit(*(out(_address(each.channel, n), ago(3_000)) for n in range(150)))
        await each.look_up(a, b)
        await each.feed()


def _address(channel: str, n: int) -> str:
    return f"+4930901{n:05}" if channel == "sms" else f"many{n}@example.org"


def test_no_transaction_touches_two_feeds(database_url: str) -> None:
    """Nor a feed and another table. Units that share a commit share the queue, whose key is the feed."""

    async def body() -> list[RecordedUnit]:
        async with recorded(database_url) as (deployment, recorder):
            organizations = [await deployment.new_organization(), await deployment.new_organization()]
            recorder.units.clear()
            await asyncio.gather(*map(work, organizations))
            async for _ in find_changed_addresses(ADMINISTRATOR, deployment.database):
                pass
            return recorder.units

    units = asyncio.run(body())
    assert {name for unit in units for name in unit.names} >= {
        "open_feed", "lock_feed", "current_records", "keep_versions", "add_records", "put_records", "touch_records",
        "record_submission", "count_changes",
    }  # fmt: skip
    assert all(unit.is_about_feeds for unit in units), "nothing else is written"
    assert [unit for unit in units if len(unit.feeds) != 1] == []
    assert [unit for unit in units if not unit.tables <= set(FEED_TABLES) | _FUNCTIONS] == []
    assert [unit for unit in units if unit.queue_key is not None and {unit.queue_key} != unit.feeds] == []
    assert len({feed for unit in units for feed in unit.feeds}) == 4


_FUNCTIONS = {"json_array_elements_text", "jsonb_each", "json_each"}


def test_only_the_transaction_after_a_restore_touches_all_feeds(database_url: str) -> None:
    """One transaction for all feeds and keys, while no server runs, so that it applies to all of them or none.

    Citus commits it on all nodes or on none. Where the feeds are apart, it is one for each database.
    """

    async def body() -> list[RecordedUnit]:
        async with recorded(database_url) as (deployment, recorder):
            for _ in range(2):
                await work(await deployment.new_organization())
            recorder.units.clear()
            await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
            return recorder.units

    units = asyncio.run(body())
    assert len(units) == (2 if isinstance(database_url, Apart) else 1)
    assert len(units[0].feeds - {ALL_FEEDS}) == 4
    assert {"feeds", "clients", "audit"} <= {table for unit in units for table in unit.tables}
