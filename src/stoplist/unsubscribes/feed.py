"""The feed of an organization and channel: one sequence of changes. Source: docs/interface.md section D6."""

import secrets
from typing import NamedTuple

from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import StoreUnavailable
from stoplist.organizations.target import Target
from stoplist.unsubscribes.channel import Channel, feed_id

_QUERIES = load_queries(__package__)
_FEED = _QUERIES["feed"]
_FEEDS = _QUERIES["feeds"]
_OPEN_FEED = _QUERIES["open_feed"]
_RENEW_GENERATION = _QUERIES["renew_generation"]


class Feed(NamedTuple):
    """A feed at one moment: `head_seq` is the number of its last change, `writes` increases with every write."""

    feed_id: int
    generation: str
    head_seq: int
    writes: int


async def find_feed(database: Database, target: Target, channel: Channel) -> Feed | None:
    """Return the feed of the target's organization, or None if nothing was ever stored and nobody follows it."""
    number = feed_id(target.organization_id, channel)
    row = await database.one(_FEED, feed_id=number)
    return None if row is None else Feed(number, row["generation"], row["head_seq"], row["writes"])


async def open_feed(database: Database, target: Target, channel: Channel) -> Feed:
    """Return the feed of the target's organization, creating it if it does not exist."""
    await database.write_one(
        _OPEN_FEED,
        feed_id=feed_id(target.organization_id, channel),
        organization_id=target.organization_id,
        channel=channel.name,
        generation=_new_generation(),
    )
    feed = await find_feed(database, target, channel)
    if feed is None:
        raise StoreUnavailable("The feed could not be opened: try again shortly.")
    return feed


async def renew_generations(transaction: Transaction) -> int:
    """Invalidate every cursor given out so far; return the number of feeds."""
    feeds = await transaction.all(_FEEDS)
    for feed in feeds:
        await transaction.run(_RENEW_GENERATION, feed_id=feed["feed_id"], generation=_new_generation())
    return len(feeds)


def _new_generation() -> str:
    """Return a generation name that no feed has ever had."""
    return secrets.token_hex(16)
