"""Moves the entries in the outboxes of feeds to the accounts, each exactly once.

Its id is noted there together with it, and it is deleted from the outbox afterwards. A process that ends in between
leaves an entry that is there already, which the next one deletes. An entry that cannot be read stays.
Source: docs/interface.md section D1, Feeds apart.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec

from stoplist.audit import trail
from stoplist.db import Database, Row, Transaction
from stoplist.db.feed_outbox import AUDIT, NOTICE
from stoplist.db.query import json_text, load_queries
from stoplist.db.split import SplitDatabase
from stoplist.errors import StoreUnavailable
from stoplist.notices import outbox

_QUERIES = load_queries(__package__)
_ENTRIES = _QUERIES["entries"]
_ENTRIES_OF_FEED = _QUERIES["entries_of_feed"]
_FORGET = _QUERIES["forget_entries"]
_OLDEST = _QUERIES["oldest_entry"]
_TAKE = _QUERIES["take_entry"]

ENTRIES_AT_ONCE = 100
WAIT_S = 2.0
"""The longest that the answer to a change waits for its entries to be moved: the change is durable already."""

_TYPES: dict[str, type[trail.Entry] | type[outbox.Notice]] = {AUDIT: trail.Entry, NOTICE: outbox.Notice}

_LOG = logging.getLogger(__name__)


async def move_entries(database: Database) -> None:
    """Move all entries, except those that cannot be read, each of which is logged once.

    A chore; does nothing for one database.
    """
    if not isinstance(database, SplitDatabase):
        return
    unreadable: set[str] = set()
    async for entries in waiting_entries(database.feeds):
        unreadable |= await _move(database, entries)
    if new := sorted(unreadable - database.unreadable_entries):
        _LOG.error("Entries of the audit cannot be moved: see stoplist doctor", extra={"fields": {"entries": new}})
    database.unreadable_entries = frozenset(unreadable)


async def move_entries_of_feed(database: SplitDatabase, feed_id: int) -> None:
    """Move the entries of a feed, after the change that they are about, within WAIT_S. The chore moves the rest."""
    try:
        async with asyncio.timeout(WAIT_S):
            after = ""
            while entries := await database.feeds.all(
                _ENTRIES_OF_FEED, feed_id=feed_id, after_entry=after, most=ENTRIES_AT_ONCE
            ):
                await _move(database, entries)
                after = entries[-1]["entry_id"]
    except (StoreUnavailable, TimeoutError) as error:
        why = error.text if isinstance(error, StoreUnavailable) else f"They were not moved within {WAIT_S:g} s."
        _LOG.warning("Entries of the audit will be moved later", extra={"fields": {"why": why}})


async def waiting_entries(feeds: Database) -> AsyncIterator[list[Row]]:
    """Yield the entries in all outboxes, the oldest first."""
    after_ms, after_entry = -1, ""
    while entries := await feeds.all(_ENTRIES, after_ms=after_ms, after_entry=after_entry, most=ENTRIES_AT_ONCE):
        yield entries
        after_ms, after_entry = entries[-1]["added_ms"], entries[-1]["entry_id"]


async def oldest_wait_s(database: Database, now_ms: int) -> float | None:
    """Return for how long the oldest entry has waited, in seconds: 0 if none waits, None for one database."""
    if not isinstance(database, SplitDatabase):
        return None
    row = await database.feeds.one(_OLDEST)
    return 0 if row is None or row["added_ms"] is None else max(0, now_ms - row["added_ms"]) / 1000


def decoded(entry: Row) -> trail.Entry | outbox.Notice | None:
    """Return the content of an entry; None if it cannot be read: it is damaged, or a newer release wrote it."""
    if entry["kind"] not in _TYPES:
        return None
    try:
        return msgspec.json.decode(entry["body"], type=_TYPES[entry["kind"]])
    except msgspec.DecodeError:
        return None


async def _move(database: SplitDatabase, entries: Sequence[Row]) -> set[str]:
    """Move the entries, and return the ids of those that cannot be read."""
    contents = [(entry, content) for entry in entries if (content := decoded(entry)) is not None]
    if contents:
        await database.accounts.write(partial(_take, contents))
    of_feed = defaultdict(list)
    for entry, _ in contents:
        of_feed[entry["feed_id"]].append(entry["entry_id"])
    for feed_id, entry_ids in of_feed.items():
        await database.feeds.write_one(_FORGET, feed_id=feed_id, entry_ids=json_text(entry_ids))
    return {entry["entry_id"] for entry in entries} - {entry["entry_id"] for entry, _ in contents}


async def _take(contents: Sequence[tuple[Row, trail.Entry | outbox.Notice]], transaction: Transaction) -> None:
    # In the same order everywhere, so that two processes that move the same entries never deadlock.
    for entry, content in sorted(contents, key=lambda one: one[0]["entry_id"]):
        if not await transaction.run(_TAKE, entry_id=entry["entry_id"], added_ms=entry["added_ms"]):
            continue  # another process has moved it
        if isinstance(content, trail.Entry):
            await trail.append(transaction, content)
        else:
            await outbox.insert(transaction, content)
