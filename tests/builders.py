"""Builders for tests of operations: an open database of either kind, actors, an organization, a key."""

import asyncio
import functools
import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest

from stoplist.actor import ADMINISTER, Actor
from stoplist.clock import Clock
from stoplist.databases.opening import joined, migrate_databases
from stoplist.db import ALL_FEEDS, Database, Row, Transaction, schema
from stoplist.db.opening import open_database
from stoplist.db.query import Query, parse_queries
from stoplist.db.sharding import FEED_TABLES
from stoplist.errors import Refused
from stoplist.oauth import bearer
from stoplist.oauth.authentication import PresentedCredentials, find_client, is_authenticated
from stoplist.oauth.credentials import NewCredential, create_credential
from stoplist.oauth.model import Bearer, TokenPair
from stoplist.oauth.tokens import Rotation, find_refresh_token, issue_pair, rotate_pair
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import create_organization
from tests.fakes import FakeClock
from tests.services.pgbouncer import PgBouncer

ADMINISTRATOR = Actor(
    kind="command",
    id="tester",
    may=frozenset((ADMINISTER,)),
    source_ip="192.0.2.9",
    request_id="00112233445566778899aabb",
)
STRANGER = Actor(kind="command", id="stranger", may=frozenset(("read",)))

# The number of the last migration.
NEWEST = schema.load_migrations()[-1].number

_TABLE = re.compile(r"\b(?:FROM|INTO|JOIN|UPDATE) (\w+)")

Test = Callable[..., Coroutine[Any, Any, None]]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
T = TypeVar("T")


class Pooled(str):
    """The URL of a PostgreSQL database through a pooler in transaction mode."""

    direct: str
    """The URL of the same database without the pooler."""


def pooled(pooler: PgBouncer, url: str) -> Pooled:
    """Return the URL of the same database through this pooler."""
    by_way_of = Pooled(pooler.url(url))
    by_way_of.direct = url
    return by_way_of


def direct(url: str) -> str:
    """Return the URL of the same database without a pooler."""
    return url.direct if isinstance(url, Pooled) else url


class Apart(str):
    """The URL of the database of the accounts, where the feeds are in another one."""

    feeds: str
    """The URL of the database of the feeds."""


def apart(accounts: str, feeds: str) -> Apart:
    """Return the URLs of two databases that are a pair."""
    both = Apart(accounts)
    both.feeds = feeds
    return both


class AuditRow(NamedTuple):
    """One row of the audit."""

    at_ms: int
    actor: str
    source_ip: str | None
    request_id: str | None
    action: str
    target: str
    detail: dict[str, Any]


def sql(text: str) -> Query:
    """Return a statement that is written as in a queries.sql."""
    query = parse_queries(f"-- name: of_a_test\n{text}")["of_a_test"]
    reads_feeds = query.reads_feeds or not set(_TABLE.findall(text)).isdisjoint(FEED_TABLES)
    reads_accounts = query.reads_accounts and not reads_feeds
    return msgspec.structs.replace(query, reads_feeds=reads_feeds, reads_accounts=reads_accounts)


@asynccontextmanager
async def opened(database_url: str, **options: Any) -> AsyncIterator[Database]:
    """Open a database as it is, or a pair; an absent SQLite file is created."""
    options.setdefault("prepared", not isinstance(database_url, Pooled))
    database: Database = await open_database(database_url, create=True, **options)
    if isinstance(database_url, Apart):
        database = joined(database, await open_database(database_url.feeds, create=True, **options))
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def migrated(database_url: str, **options: Any) -> AsyncIterator[Database]:
    """Open a database, or a pair, and bring its schema up to this release."""
    async with opened(database_url, **options) as database:
        await migrate_databases(database, environment="development", now_ms=0)
        yield database


@contextmanager
def in_a_loop(opening: AbstractAsyncContextManager[T]) -> Iterator[tuple[Run, T]]:
    """Enter the context in an event loop of its own; yield that loop's `run`, and what the context opened."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        opened = runner.run(stack.enter_async_context(opening))
        yield runner.run, opened
        runner.run(stack.aclose())


def on_database(database_url: str, act: Callable[..., Coroutine[Any, Any, T]], *values: Any, **named: Any) -> T:
    """Open a database as it is, and return the result of `act(database, …)`, for tests that are no coroutines."""

    async def body() -> T:
        async with opened(database_url, pool_size=2) as database:
            return await act(database, *values, **named)

    return asyncio.run(body())


async def migrate_to(database: Database, number: int) -> None:
    """Migrate the schema up to that migration."""
    await schema.migrate(database, environment="development", now_ms=0, migrations=schema.load_migrations()[:number])


def on_each_database(test: Test) -> Callable[..., None]:
    """Decorate a test that is a coroutine: it runs on each kind of database, given migrated as `database`."""
    return _on("database_url", test)


def on_sqlite(test: Test) -> Callable[..., None]:
    """Decorate a test like `on_each_database`, for SQLite alone."""
    return _on("sqlite_url", test)


def on_postgresql(test: Test) -> Callable[..., None]:
    """Decorate a test like `on_each_database`, for PostgreSQL alone."""
    return _on("postgresql_url", test)


async def execute(database: Database, text: str, **values: Any) -> int:
    """Run one statement as a unit of its own; return how many rows it touched."""
    query = sql(text)

    async def unit(transaction: Transaction) -> int:
        if database.kind == "postgresql" and not query.parameters:
            await transaction.all(query)  # the answer to DDL ends in a word, not in a number
            return 0
        return await transaction.run(query, **values)

    return await database.write(unit, feed_id=ALL_FEEDS if query.reads_feeds else None)


async def value(database: Database, text: str, **values: Any) -> Any:
    """Return the first value of the first row; None if there is no row."""
    row = await database.one(sql(text), **values)
    return None if row is None else next(iter(dict(row).values()))


async def contents(database: Database, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of these tables, sorted, for comparison."""
    rows = {table: await database.all(sql(f"SELECT * FROM {table}")) for table in tables}  # noqa: S608
    return {table: sorted((tuple(row) for row in found), key=repr) for table, found in rows.items()}


async def audit_rows(database: Database) -> list[AuditRow]:
    """Return the whole audit, oldest entry first."""
    rows: list[Row] = await database.all(sql("SELECT * FROM audit ORDER BY audit_id"))
    return [
        AuditRow(
            row["at_ms"],
            f"{row['actor_kind']} {row['actor_id']}",
            row["source_ip"],
            row["request_id"],
            row["action"],
            row["target"],
            json.loads(row["detail"]),
        )
        for row in rows
    ]


async def make_organization(
    database: Database, clock: Clock, slug: str = "acme", *, default_group: str | None = None
) -> Organization:
    """Create an organization, with a default group if one is named."""
    return await create_organization(
        ADMINISTRATOR, database, clock, slug=slug, name=slug.title(), default_group=default_group
    )


async def make_key(database: Database, clock: Clock, *organizations: str, **options: Any) -> NewCredential:
    """Create a key for these organizations, which must exist (default: `acme`)."""
    options = {"label": "partner", "organizations": organizations or ("acme",)} | options
    return await create_credential(ADMINISTRATOR, database, clock, **options)


async def make_token(database: Database, clock: FakeClock, key: NewCredential) -> TokenPair:
    """Issue a token pair to this key."""
    client = await find_client(database, key.credential.client_id)
    assert client is not None
    pair = await issue_pair(database, clock, client)
    assert pair is not None
    return pair


async def authenticates(database: Database, key: NewCredential) -> bool:
    """Return whether a token request with this secret authenticates."""
    presented = PresentedCredentials(client_id=key.credential.client_id, client_secret=key.client_secret)
    return is_authenticated(await find_client(database, key.credential.client_id), presented)


async def find_bearer(database: Database, clock: FakeClock, access_token: str) -> Bearer | None:
    """Return whom the token speaks for; None if it is not valid."""
    found = await bearer.find_bearer(database, clock, access_token)
    return found if isinstance(found, Bearer) else None


async def rotate_token(database: Database, clock: FakeClock, refresh_token: str) -> TokenPair | None:
    """Rotate a refresh token, in whatever state; None if it cannot be rotated."""
    found = await find_refresh_token(database, refresh_token, clock.now_ms())
    assert found is not None
    return await rotate_pair(database, clock, Rotation(refresh_token=refresh_token, found=found))


async def refused(database: Database, attempt: Awaitable[Any], text: str) -> None:
    """Assert that the attempt is refused with this text (as the command line prints it), and not audited."""
    before = await audit_rows(database)
    with pytest.raises(Refused) as refusal:
        await attempt
    assert re.search(text, f"{refusal.value.text} {refusal.value.command}"), refusal.value
    assert await audit_rows(database) == before


def _on(url_fixture: str, test: Test) -> Callable[..., None]:
    @functools.wraps(test)
    def body(**given: Any) -> None:
        async def with_database() -> None:
            async with migrated(given.pop(url_fixture)) as database:
                await test(database=database, **given)

        asyncio.run(with_database())

    # What pytest reads to see which fixtures the test wants: the address in place of the database.
    wanted = [name for name in inspect.signature(test).parameters if name != "database"]
    body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (url_fixture, *wanted)]
    )
    return body
