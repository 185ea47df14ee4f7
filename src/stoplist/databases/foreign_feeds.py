"""Feeds that another organization opened: after a restore of one database, numbers are assigned a second time.

Each organization has a random id, which the feeds that it opened carry.
Source: docs/interface.md section D1, Feeds apart.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from stoplist.db import Database, Row, Transaction
from stoplist.db.query import Query, load_queries
from stoplist.db.split import SplitDatabase

_QUERIES = load_queries(__package__)
_COMPLETE_UIDS = _QUERIES["complete_uids"]
_HIGHEST_OWNER = _QUERIES["highest_owner"]
_OWNERS = _QUERIES["owners_of_feeds"]
_SET_OWNER = _QUERIES["set_owner"]
_SKIP_NUMBERS = _QUERIES["skip_numbers"]
_UIDS = _QUERIES["uids"]

_LOG = logging.getLogger(__name__)


class RowsSource(Protocol):
    """The part of a database or a transaction that reads rows."""

    async def all(self, query: Query) -> list[Row]: ...


class ForeignFeed(NamedTuple):
    """A feed that its organization did not open; `is_lost` if there is no organization of that number at all."""

    feed_id: int
    organization_id: int
    is_lost: bool


async def find_foreign_feeds(database: SplitDatabase) -> list[ForeignFeed]:
    """Return the foreign feeds, by number."""
    # Before the organizations: each feed was opened after its organization was created.
    feeds = await database.feeds.all(_OWNERS)
    uids = {row["organization_id"]: row["uid"] for row in await database.accounts.all(_UIDS)}
    return sorted(
        ForeignFeed(feed["feed_id"], feed["organization_id"], feed["organization_id"] not in uids)
        for feed in feeds
        if feed["organization_uid"] is None or uids.get(feed["organization_id"]) != feed["organization_uid"]
    )


async def watch_foreign_feeds(database: Database) -> None:
    """Look for foreign feeds, which are refused from now on; log those that are new. At the start, and a chore."""
    if not isinstance(database, SplitDatabase):
        return
    found = frozenset(feed.feed_id for feed in await find_foreign_feeds(database))
    if new := sorted(found - database.foreign_feeds):
        _LOG.error("Feeds of other organizations are refused: see stoplist doctor", extra={"fields": {"feeds": new}})
    database.foreign_feeds = found


async def complete_uids(transaction: Transaction) -> None:
    """Give an id to each organization that has none, because an older program created it in a SQLite file."""
    await transaction.run(_COMPLETE_UIDS)


async def complete_owners(accounts: RowsSource, feeds: RowsSource, write: Callable[..., Awaitable[Any]]) -> None:
    """Write the id of its organization into each feed that carries none, because an older program opened it.

    `write` runs a statement in the database of the feeds.
    """
    uids = {row["organization_id"]: row["uid"] for row in await accounts.all(_UIDS)}
    for feed in await feeds.all(_OWNERS):
        uid = uids.get(feed["organization_id"])
        if feed["organization_uid"] is None and uid is not None:
            await write(_SET_OWNER, feed_id=feed["feed_id"], organization_uid=uid)


async def skip_used_numbers(database: Database) -> None:
    """Let no organization get a number under which there are feeds already. Does nothing for one database."""
    if not isinstance(database, SplitDatabase):
        return
    row = await database.feeds.one(_HIGHEST_OWNER)
    if row is not None and row["organization_id"] is not None:
        await database.accounts.write_one(_SKIP_NUMBERS, used=row["organization_id"])
