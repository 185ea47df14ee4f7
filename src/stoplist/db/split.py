"""A deployment whose feeds are in a database of their own: each statement and unit of work goes to one of the two.

What a unit of a feed has to say to the accounts (audit, notices) is kept in an outbox beside the feed, in the same
transaction, and moved afterwards. Source: docs/interface.md section D1, Feeds apart. Reasons:
docs/decisions/0039-feeds-apart.md.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from stoplist.db import Counts, Database, Row, SchemaChange, Transaction, Unit
from stoplist.db.feed_outbox import ADD_ENTRY
from stoplist.db.query import Query
from stoplist.errors import StoreUnavailable

T = TypeVar("T")


class SplitDatabase:
    """The two databases of a deployment as one.

    `foreign_feeds` are the feeds that another organization opened, because the two were restored to different times:
    they are refused and left out. `unreadable_entries` stay in outboxes, and were logged. `on_entries` is awaited once
    a unit that left entries in the outbox of a feed is durable; it raises nothing.
    """

    feeds_are_apart = True

    def __init__(self, accounts: Database, feeds: Database) -> None:
        self.accounts, self.feeds = accounts, feeds
        self.kind = accounts.kind
        self.foreign_feeds: frozenset[int] = frozenset()
        self.unreadable_entries: frozenset[str] = frozenset()
        self.on_entries: Callable[[int], Awaitable[None]] = _move_later

    @property
    def counts(self) -> Counts:
        accounts, feeds = self.accounts.counts, self.feeds.counts
        return Counts(
            writes=accounts.writes + feeds.writes,
            commits=accounts.commits + feeds.commits,
            write_wait_ns=accounts.write_wait_ns + feeds.write_wait_ns,
            waiting=accounts.waiting + feeds.waiting,
            hanging_feeds=feeds.hanging_feeds,
        )

    @property
    def on_feed_written(self) -> Callable[[int], None]:
        return self.feeds.on_feed_written

    @on_feed_written.setter
    def on_feed_written(self, call: Callable[[int], None]) -> None:
        self.feeds.on_feed_written = call

    def one(self, query: Query, **values: Any) -> Coroutine[Any, Any, Row | None]:
        database = self._for(query, values)
        if self.foreign_feeds and database is self.feeds:
            return self._one_own(query, values)
        return database.one(query, **values)

    def rows(self, query: Query, *values: Any) -> Coroutine[Any, Any, Sequence[Sequence[Any]]]:
        if not query.reads_feeds:
            return self.accounts.rows(query, *values)
        if self.foreign_feeds:
            self._refuse_foreign(dict(zip(query.parameters, values, strict=True)))
        return self.feeds.rows(query, *values)

    def one_large(self, query: Query, **values: Any) -> Coroutine[Any, Any, Row | None]:
        return self._for(query, values).one_large(query, **values)

    def all(self, query: Query, **values: Any) -> Coroutine[Any, Any, list[Row]]:
        database = self._for(query, values)
        if self.foreign_feeds and database is self.feeds:
            return self._all_own(query, values)
        return database.all(query, **values)

    def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        return self._for(query, values).slices(query, **values)

    async def write(
        self, unit: Unit[T], *, queue_key: int | None = None, feed_id: int | None = None, rows: int = 1
    ) -> T:
        number = feed_id if queue_key is None else queue_key
        if number is None:
            return await self.accounts.write(lambda transaction: unit(AccountsTransaction(transaction)), rows=rows)
        self._refuse_foreign({"feed_id": number})
        # Of the last attempt: a unit may be run again.
        attempts: list[FeedTransaction] = []

        async def in_feed(transaction: Transaction) -> T:
            attempts.append(FeedTransaction(transaction, number))
            return await unit(attempts[-1])

        result = await self.feeds.write(in_feed, queue_key=queue_key, rows=rows)
        if attempts[-1].has_entries:
            await self.on_entries(number)
        return result

    def write_one(self, query: Query, **values: Any) -> Coroutine[Any, Any, Row | None]:
        return self._for(query, values).write_one(query, **values)

    def clock_ms(self) -> Coroutine[Any, Any, int | None]:
        return self.accounts.clock_ms()

    async def under_schema_lock(self, change: Callable[[SchemaChange], Awaitable[T]]) -> T:
        raise NotImplementedError("each of the two databases is migrated by itself")

    async def close(self) -> None:
        try:
            await self.feeds.close()
        finally:
            await self.accounts.close()

    def _for(self, query: Query, values: dict[str, Any]) -> Database:
        if not query.reads_feeds:
            return self.accounts
        if self.foreign_feeds:
            self._refuse_foreign(values)
        return self.feeds

    def _refuse_foreign(self, values: dict[str, Any]) -> None:
        """Raise StoreUnavailable if one of the feeds that a statement names is foreign."""
        named = {values.get("feed_id")}
        for name in ("feed_ids", "forms"):
            if name in values:
                listed = msgspec.json.decode(values[name])
                named |= {int(one[0] if isinstance(one, list) else one) for one in listed}
        if named & self.foreign_feeds:
            raise foreign_feed()

    async def _one_own(self, query: Query, values: dict[str, Any]) -> Row | None:
        row = await self.feeds.one(query, **values)
        return None if row is None else next(iter(self._own([row], values)), None)

    async def _all_own(self, query: Query, values: dict[str, Any]) -> list[Row]:
        return self._own(await self.feeds.all(query, **values), values)

    def _own(self, rows: list[Row], values: dict[str, Any]) -> list[Row]:
        """Return the rows of a statement without those of foreign feeds, where it names none and reads them all."""
        is_of_many = "feed_id" not in values and rows and "feed_id" in rows[0].keys()  # noqa: SIM118 - a Record
        return [row for row in rows if row["feed_id"] not in self.foreign_feeds] if is_of_many else rows


class AccountsTransaction:
    """A transaction in the database of the accounts: it refuses every statement about a feed."""

    outbox_feed_id: int | None = None

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def one(self, query: Query, **values: Any) -> Row | None:
        self._check(query)
        return await self._transaction.one(query, **values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        self._check(query)
        return await self._transaction.all(query, **values)

    async def run(self, query: Query, **values: Any) -> int:
        self._check(query)
        return await self._transaction.run(query, **values)

    async def pause(self) -> None:
        await self._transaction.pause()

    def _check(self, query: Query) -> None:
        if query.reads_feeds:
            raise RuntimeError(f"the statement {query.name} is about feeds, in a transaction of the accounts")


class FeedTransaction(AccountsTransaction):
    """A transaction of a feed, in the database of the feeds: it refuses every statement about other tables.

    `has_entries`: it has left an entry in the outbox of the feed.
    """

    def __init__(self, transaction: Transaction, feed_id: int) -> None:
        super().__init__(transaction)
        self.outbox_feed_id = feed_id
        self.has_entries = False

    def _check(self, query: Query) -> None:
        if query.reads_accounts:
            raise RuntimeError(f"the statement {query.name} is not about feeds, in a transaction of a feed")
        self.has_entries |= query is ADD_ENTRY


def foreign_feed() -> StoreUnavailable:
    """Return the refusal of a feed that another organization opened."""
    return StoreUnavailable(
        "The records of this organization are not available: its feed is that of another organization, because the "
        "databases were restored to different times. An operator must look at it: `stoplist doctor`.",
        retry_after_s=60,
    )


def feeds_of(database: Database) -> Database:
    """Return the database that the feeds are in: the given one, unless they are apart."""
    return database.feeds if isinstance(database, SplitDatabase) else database


def foreign_feeds_of(database: Database) -> frozenset[int]:
    """Return the feeds that a statement about many must leave out: those of other organizations, if any."""
    return database.foreign_feeds if isinstance(database, SplitDatabase) else frozenset()


async def _move_later(_feed_id: int) -> None:
    """Leave the entries to the chore."""
