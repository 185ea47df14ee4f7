"""The feed of an organization and channel: one sequence of changes. Source: docs/interface.md section D6."""

import secrets
from typing import NamedTuple

from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.db.split import foreign_feed
from stoplist.errors import StoreUnavailable
from stoplist.organizations.store import organization_uid
from stoplist.organizations.target import Target
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.erased import key_bytes, key_fingerprint, new_digest_key
from stoplist.unsubscribes.feed_state import EMPTY, FeedState, stored_state

_QUERIES = load_queries(__package__)
_FEED = _QUERIES["feed"]
_FEEDS = _QUERIES["feeds"]
_OPEN_FEED = _QUERIES["open_feed"]
_OWNER = _QUERIES["owner_of_feed"]
_RENEW_GENERATION = _QUERIES["renew_generation"]
_SET_DIGEST_KEY = _QUERIES["set_digest_key"]
_WITHOUT_DIGEST_KEY = _QUERIES["feeds_without_digest_key"]


class Feed(NamedTuple):
    """A feed at one moment: `head_seq` is the number of its last change, `writes` increases with every write.

    `state` is complete if its `seq` is `head_seq`. `digest_key` is None only where an older program opened the feed.
    """

    feed_id: int
    generation: str
    head_seq: int
    writes: int
    state: FeedState
    digest_key: str | None = None
    has_erased: bool = False

    @property
    def erasing_key(self) -> bytes | None:
        """Return the digest key if the feed has had erased records, else None."""
        return key_bytes(self.digest_key) if self.has_erased and self.digest_key is not None else None

    @property
    def key_fingerprint(self) -> str | None:
        """Return the fingerprint of the digest key if the feed has had erased records, else None."""
        return key_fingerprint(self.digest_key) if self.has_erased and self.digest_key is not None else None


UNOPENED = Feed(0, "", 0, 0, EMPTY)
"""Stands for a feed that was not opened yet."""


async def find_feed(database: Database, target: Target, channel: Channel) -> Feed | None:
    """Return the feed of the target's organization, or None if nothing was ever stored and nobody follows it."""
    return await find_feed_by_id(database, feed_id(target.organization_id, channel))


async def find_feed_by_id(database: Database, number: int) -> Feed | None:
    """Return the feed of this number, or None if it was never opened."""
    row = await database.one(_FEED, feed_id=number)
    if row is None:
        return None
    head_seq = row["head_seq"]
    return Feed(
        number,
        row["generation"],
        head_seq,
        row["writes"],
        stored_state(row, head_seq=head_seq),
        row["digest_key"],
        bool(row["has_erased"]),
    )


async def open_feed(database: Database, target: Target, channel: Channel) -> Feed:
    """Return the feed of the target's organization, creating it if it does not exist.

    StoreUnavailable if it is that of another organization, which had the same number before a restore.
    """
    number, uid = feed_id(target.organization_id, channel), await organization_uid(database, target.organization_id)
    await database.write_one(
        _OPEN_FEED,
        feed_id=number,
        organization_id=target.organization_id,
        organization_uid=uid,
        channel=channel.name,
        generation=_new_generation(),
        digest_key=new_digest_key(),
    )
    owner = await database.one(_OWNER, feed_id=number)
    if owner is not None and owner["organization_uid"] not in (None, uid):
        raise foreign_feed()
    feed = await find_feed(database, target, channel)
    if feed is None:
        raise StoreUnavailable("The feed could not be opened: try again shortly.")
    return feed


async def complete_digest_keys(database: Database) -> None:
    """Make a digest key for each feed that has none, because an older program opened it. May be repeated."""
    for feed in await database.all(_WITHOUT_DIGEST_KEY):
        await database.write_one(_SET_DIGEST_KEY, feed_id=feed["feed_id"], digest_key=new_digest_key())


async def renew_generations(transaction: Transaction) -> int:
    """Invalidate every cursor given out so far; return the number of feeds."""
    feeds = await transaction.all(_FEEDS)
    for feed in feeds:
        await transaction.run(_RENEW_GENERATION, feed_id=feed["feed_id"], generation=_new_generation())
    return len(feeds)


def _new_generation() -> str:
    """Return a generation name that no feed has ever had."""
    return secrets.token_hex(16)
