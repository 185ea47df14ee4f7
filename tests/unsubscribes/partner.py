"""Fixtures for opt-outs: one call for each act of a partner or an operator, and the rows stored afterwards."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import asyncpg
import msgspec

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.db.postgresql import Postgresql
from stoplist.db.sqlite import Sqlite
from stoplist.organizations.groups import create_group
from stoplist.unsubscribes.channel import CHANNELS, feed_id
from stoplist.unsubscribes.follow import follow, look_up
from stoplist.unsubscribes.model import BadItem, Item, OptOutStores, Page, Record, RequestedTarget, Submission
from stoplist.unsubscribes.submit import submit
from tests.builders import ADMINISTRATOR, make_key, make_organization, migrated, sql, value
from tests.deployment import Deployment
from tests.fakes import FakeClock
from tests.keys import EVERY_PERMISSION
from tests.unsubscribes.naive import NaiveRecord

SECRET_KEY = "k" * 32

Sent = dict[str, Any]
"""An item as a partner writes it."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = itertools.count(1)


class Statements(list[str]):
    """The statements that reached the database, in order."""

    @property
    def in_transaction(self) -> list[str]:
        """Return those from BEGIN to COMMIT, without the savepoints that separate the units of one commit."""
        begins = [at for at, text in enumerate(self) if text.startswith("BEGIN")]
        ends = [at for at, text in enumerate(self) if text.startswith("COMMIT")]
        (begin,), (end,) = begins, ends
        return [text for text in self[begin : end + 1] if not text.startswith(("SAVEPOINT", "RELEASE"))]


class Organization(NamedTuple):
    """An organization with a default group and a partner with all permissions, on one channel."""

    deployment: "OptOutDeployment"
    slug: str
    organization_id: int
    default_group: str
    partner: Actor
    channel: str = "email"

    @property
    def feed_id(self) -> int:
        return feed_id(self.organization_id, CHANNELS[self.channel])

    def on(self, channel: str) -> "Organization":
        """Return the same organization on another channel."""
        return self._replace(channel=channel)

    async def new_group(self, name: str) -> str:
        """Create another group; return its id."""
        deployment = self.deployment
        group = await create_group(ADMINISTRATOR, deployment.database, deployment.clock, org_slug=self.slug, name=name)
        return group.group_id

    async def new_partner(self, *permissions: str) -> Actor:
        """Create another partner with these permissions, by default all."""
        return await self.deployment.new_partner(self.slug, permissions=permissions or EVERY_PERMISSION)

    async def submit(
        self,
        *items: Sent | BadItem,
        by: Actor | None = None,
        group_id: str | None = None,
        all_groups: bool = False,
        is_lenient: bool = False,
        is_minimal: bool = False,
    ) -> Submission:
        """Submit a batch of these items; return the answer."""
        return await submit(
            by or self.partner,
            self.deployment.stores,
            CHANNELS[self.channel],
            RequestedTarget(org_slug=self.slug, group_id=group_id, all_groups=all_groups),
            [item if isinstance(item, BadItem) else msgspec.convert(item, Item) for item in items],
            is_lenient=is_lenient,
            is_minimal=is_minimal,
        )

    async def follow(
        self,
        cursor: str | None = None,
        *,
        limit: int = 1_000,
        group_id: str | None = None,
        secret_keys: tuple[str, ...] = (SECRET_KEY,),
    ) -> Page:
        """Return one page."""
        stores = msgspec.structs.replace(self.deployment.stores, secret_keys=secret_keys)
        named = RequestedTarget(org_slug=self.slug, group_id=group_id)
        followed = await follow(self.partner, stores, CHANNELS[self.channel], named, limit=limit, cursor=cursor)
        return followed.page

    async def pages(
        self, cursor: str | None = None, *, limit: int = 1_000, group_id: str | None = None
    ) -> AsyncIterator[Page]:
        """Yield pages until there is no more."""
        has_more = True
        while has_more:
            page = await self.follow(cursor, limit=limit, group_id=group_id)
            yield page
            cursor, has_more = page.next_cursor, page.has_more

    async def feed(self, cursor: str | None = None, *, limit: int = 1_000, group_id: str | None = None) -> list[Record]:
        """Return all records after the cursor, page by page."""
        return [record async for page in self.pages(cursor, limit=limit, group_id=group_id) for record in records(page)]

    async def look_up(self, *addresses: str, group_id: str | None = None) -> Page:
        """Return the records of these addresses."""
        named = RequestedTarget(org_slug=self.slug, group_id=group_id)
        return await look_up(
            self.partner, self.deployment.stores, CHANNELS[self.channel], named, addresses=list(addresses)
        )

    async def rows(self, table: str, order: str) -> list[dict[str, Any]]:
        """Return the stored rows of this feed."""
        query = sql(f"SELECT * FROM {table} WHERE feed_id = :feed_id ORDER BY {order}")  # noqa: S608
        return [dict(row) for row in await self.deployment.database.all(query, feed_id=self.feed_id)]

    async def stored(self) -> dict[str, list[dict[str, Any]]]:
        """Return everything stored of this feed, for comparison with a later moment."""
        orders = {
            "feeds": "feed_id",
            "unsubscribes": "seq",
            "unsubscribe_versions": "seq",
            "confirmed_ranges": "last_seq",
            "submissions": "submission_id",
            "feed_days": "day, status, reason",
        }
        return {table: await self.rows(table, order) for table, order in orders.items()}


class OptOutDeployment(Deployment):
    """A deployment whose partners submit and follow opt-outs."""

    @property
    def stores(self) -> OptOutStores:
        return OptOutStores(database=self.database, clock=self.clock, secret_keys=(SECRET_KEY,))

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def ago(self, milliseconds: int) -> str:
        """Return the time this long ago, as partners write it."""
        return written(self.now_ms - milliseconds)

    async def new_organization(self, channel: str = "email") -> Organization:
        """Create an organization that no other test uses."""
        slug = f"org-{next(_NUMBERS)}"
        made = await make_organization(self.database, self.clock, slug, default_group="Newsletter")
        default = await value(self.database, "SELECT default_group_id FROM organizations WHERE slug = :slug", slug=slug)
        partner = await self.new_partner(slug)
        return Organization(self, slug, made.organization_id, default, partner, channel)

    async def new_partner(self, *slugs: str, permissions: Iterable[str] = EVERY_PERMISSION, **options: Any) -> Actor:
        """Return a partner with a key for these organizations."""
        made = await make_key(self.database, self.clock, *slugs, permissions=frozenset(permissions), **options)
        return Actor(
            kind="client",
            id=made.credential.client_id,
            may=frozenset(permissions),
            source_ip="192.0.2.1",
            request_id=f"{next(_NUMBERS):024x}",
        )


@asynccontextmanager
async def opt_out_deployment(database_url: str, clock: FakeClock | None = None) -> AsyncIterator[OptOutDeployment]:
    """Yield a deployment on an empty database, with one connection for reads and one for submissions."""
    async with migrated(database_url, pool_size=2) as database:
        yield OptOutDeployment(database, clock or FakeClock())


def records(page: Page) -> list[Record]:
    """Return the records of a page."""
    assert isinstance(page.items, list)
    return page.items


def addresses(found: Page | Iterable[Record]) -> list[str]:
    """Return the addresses of these records, in order."""
    return [record.address or "" for record in (records(found) if isinstance(found, Page) else found)]


def results(answer: Submission) -> list[tuple[str, str]]:
    """Return for each item its result and its record's status afterwards."""
    assert isinstance(answer.items, list)
    return [(item.result, item.status) for item in answer.items]


def written(at_ms: int) -> str:
    """Return a time as a partner writes it."""
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")


def shown(at_ms: int) -> str:
    """Return a time as it is answered."""
    return written(at_ms).replace("+00:00", "Z")


def as_shown(record: NaiveRecord, *, record_id: str, org_slug: str, group_id: str | None) -> dict[str, Any]:
    """Return a record of the naive model as it is answered."""
    return {
        "id": record_id,
        "org_slug": org_slug,
        "group_id": group_id,
        "address": record.address,
        "status": record.now.status,
        "reason": record.now.reason,
        "source": record.now.source,
        "occurred_at": shown(record.now.occurred_ms),
        "recorded_at": shown(record.now.recorded_ms),
        "seq": record.now.seq,
    }


def out(address: str, occurred_at: str | None = None, **more: Any) -> Sent:
    """Return an opt-out."""
    return {"address": address, **({} if occurred_at is None else {"occurred_at": occurred_at}), **more}


def back(address: str, occurred_at: str, **more: Any) -> Sent:
    """Return a resubscription."""
    return {"address": address, "status": "resubscribed", "occurred_at": occurred_at, **more}


@contextmanager
def listening(database: Database) -> Iterator[Statements]:
    """Yield the statements that reach the database, as its own driver sees them.

    For SQLite these are the statements of the writing connection.
    """
    heard = Statements()
    if isinstance(database, Sqlite):
        # A checkpoint after earlier writes may still be running in the writer's thread.
        database._write_thread.submit(int).result()
        database._writer.set_trace_callback(lambda text: heard.append(text.strip()))
        try:
            yield heard
        finally:
            database._writer.set_trace_callback(None)
        return
    assert isinstance(database, Postgresql)
    both: list[Any] = [database._small_pool, database._feed_pool]
    connections = [idle.connection for pool in both for idle in pool._idle]

    def hear(query: asyncpg.connection.LoggedQuery) -> None:
        heard.append(query.query.strip())

    for connection in connections:
        connection.add_query_logger(hear)
    try:
        yield heard
    finally:
        for connection in connections:
            connection.remove_query_logger(hear)


async def heard_all() -> None:
    """Wait until the listeners of PostgreSQL's driver have received every statement."""
    await asyncio.sleep(0)
