"""Moves the entries in the outboxes of feeds to the accounts, each exactly once.

Its id is noted there together with it, and it is deleted from the outbox afterwards. A process that ends in between
leaves an entry that is there already, which the next one deletes. Source: docs/interface.md section D1, Feeds apart.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import msgspec

from stoplist.audit import trail
from stoplist.db import Database, Row, Transaction
from stoplist.db.feed_outbox import AUDIT
from stoplist.db.query import json_text, load_queries
from stoplist.db.split import SplitDatabase
from stoplist.errors import StoreUnavailable
from stoplist.notices import outbox

_QUERIES = load_queries(__package__)
_ENTRIES = _QUERIES["entries"]
_ENTRIES_OF_FEED = _QUERIES["entries_of_feed"]
_FORGET = _QUERIES["forget_entries"]
_TAKE = _QUERIES["take_entry"]

ENTRIES_AT_ONCE = 100
WAIT_S = 2.0
"""The longest that the answer to a change waits for its entries to be moved: the change is durable already."""

_LOG = logging.getLogger(__name__)


async def move_entries(database: Database) -> None:
    """Move all entries. A chore; does nothing for one database."""
    if isinstance(database, SplitDatabase):
        while entries := await database.feeds.all(_ENTRIES, most=ENTRIES_AT_ONCE):
            await _move(database, entries)


async def move_entries_of_feed(database: SplitDatabase, feed_id: int) -> None:
    """Move the entries of a feed, after the change that they are about, within WAIT_S. The chore moves the rest."""
    try:
        async with asyncio.timeout(WAIT_S):
            while entries := await database.feeds.all(_ENTRIES_OF_FEED, feed_id=feed_id, most=ENTRIES_AT_ONCE):
                await _move(database, entries)
    except (StoreUnavailable, TimeoutError) as error:
        why = error.text if isinstance(error, StoreUnavailable) else f"They were not moved within {WAIT_S:g} s."
        _LOG.warning("Entries of the audit will be moved later", extra={"fields": {"why": why}})


async def _move(database: SplitDatabase, entries: Sequence[Row]) -> None:
    await database.accounts.write(partial(_take, entries))
    of_feed = defaultdict(list)
    for entry in entries:
        of_feed[entry["feed_id"]].append(entry["entry_id"])
    for feed_id, entry_ids in of_feed.items():
        await database.feeds.write_one(_FORGET, feed_id=feed_id, entry_ids=json_text(entry_ids))


async def _take(entries: Sequence[Row], transaction: Transaction) -> None:
    # In the same order everywhere, so that two processes that move the same entries never deadlock.
    for entry in sorted(entries, key=itemgetter("entry_id")):
        if not await transaction.run(_TAKE, entry_id=entry["entry_id"], added_ms=entry["added_ms"]):
            continue  # another process has moved it
        if entry["kind"] == AUDIT:
            await trail.append(transaction, msgspec.json.decode(entry["body"], type=trail.Entry))
        else:
            await outbox.insert(transaction, msgspec.json.decode(entry["body"], type=outbox.Notice))
