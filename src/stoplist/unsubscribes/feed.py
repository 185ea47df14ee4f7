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
_OPEN = _QUERIES["open_feed"]
_RENEW = _QUERIES["renew_generation"]


class Feed(NamedTuple):
    """A feed as it was at one moment; `head_seq` is the number of the last change, and
    `writes` another one whenever anything was stored."""

    feed_id: int
    generation: str
    head_seq: int
    writes: int


async def find_feed(database: Database, target: Target, channel: Channel) -> Feed | None:
    """The feed of the target's organization; None while it holds nothing and nobody follows it."""
    number = feed_id(target.organization_id, channel)
    row = await database.one(_FEED, feed_id=number)
    return None if row is None else Feed(number, row["generation"], row["head_seq"], row["writes"])


async def open_feed(database: Database, target: Target, channel: Channel) -> Feed:
    """The feed of the target's organization; it exists from now on."""
    await database.write_one(
        _OPEN,
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
    """No cursor given out before is accepted any more; returns how many feeds there are."""
    feeds = await transaction.all(_FEEDS)
    for feed in feeds:
        await transaction.run(_RENEW, feed_id=feed["feed_id"], generation=_new_generation())
    return len(feeds)


def _new_generation() -> str:
    """A name that no generation of any feed ever had."""
    return secrets.token_hex(16)
