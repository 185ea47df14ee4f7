"""The keys that read each feed, with what is stored of them.

Keys and feeds lie on different nodes of a Citus, so they are joined here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.db.split import foreign_feeds_of
from stoplist.oauth.credentials import list_credentials
from stoplist.oauth.model import READ, Credential
from stoplist.organizations.model import Organization
from stoplist.organizations.target import ALL_GROUPS
from stoplist.proof.follower import MUST_FOLLOW, NEVER, STOPPED, Follower, Mark, covered_by
from stoplist.proof.positions import follower_of
from stoplist.unsubscribes.channel import Channel, feed_id

_QUERIES = load_queries(__package__)
_FEEDS = _QUERIES["heads_and_generations"]
_FOLLOWERS = _QUERIES["followers_of_feeds"]
_OLDEST = _QUERIES["oldest_after"]


class FeedHead(NamedTuple):
    """A feed of an organization, with the number of its newest change."""

    feed_id: int
    generation: str
    head_seq: int
    organization: Organization
    channel: str


class FeedReader(NamedTuple):
    """A key and what is stored of it for a group of a feed, or for the whole feed."""

    feed: FeedHead
    key: Credential
    group_no: int
    follower: Follower
    mark: Mark | None

    @property
    def counts_changes(self) -> bool:
        return self.mark != STOPPED and (bool(self.follower.generation) or self.mark == MUST_FOLLOW)


async def find_feeds(
    database: Database, organizations: Sequence[Organization], channels: Iterable[Channel]
) -> dict[int, FeedHead]:
    """Return by number the feeds of these organizations and channels that were opened, without foreign ones."""
    named = {
        feed_id(organization.organization_id, channel): (organization, channel.name)
        for organization in organizations
        for channel in channels
    }
    for number in foreign_feeds_of(database):
        named.pop(number, None)
    rows = await database.all(_FEEDS, feed_ids=json_text(sorted(named)))
    return {
        row["feed_id"]: FeedHead(row["feed_id"], row["generation"], row["head_seq"], *named[row["feed_id"]])
        for row in rows
    }


async def find_readers(
    actor: Actor, database: Database, feeds: Mapping[int, FeedHead], *, with_never: bool = True
) -> list[FeedReader]:
    """Return every reader of these feeds, and, `with_never`, a key that may read but never did once for each feed.

    Without them the cost does not depend on the number of keys, only on that of readers.
    """
    rows = await database.all(_FOLLOWERS, feed_ids=json_text(sorted(feeds)))
    stored: dict[int, dict[str, list[Row]]] = {}
    for row in rows:
        stored.setdefault(row["feed_id"], {}).setdefault(row["client_id"], []).append(row)
    keys_of: dict[str, list[Credential]] = {}
    client_ids = None if with_never else {row["client_id"] for row in rows}
    for key in await list_credentials(actor, database, client_ids=client_ids):
        if key.is_active:
            for slug in key.organizations:
                keys_of.setdefault(slug, []).append(key)
    return [
        reader
        for feed in feeds.values()
        for key in keys_of.get(feed.organization.slug, ())
        if with_never or key.client_id in stored.get(feed.feed_id, {})
        for reader in _readers_of_key(feed, key, stored.get(feed.feed_id, {}).get(key.client_id, []))
    ]


def _readers_of_key(feed: FeedHead, key: Credential, rows: Sequence[Row]) -> list[FeedReader]:
    known = {
        row["group_no"]: FeedReader(
            feed, key, row["group_no"], follower_of(row).in_generation(feed.generation), row["mark"]
        )
        for row in rows
    }
    whole = known.get(ALL_GROUPS, FeedReader(feed, key, ALL_GROUPS, NEVER, None)).follower
    readers = [
        reader if reader.group_no == ALL_GROUPS else reader._replace(follower=covered_by(reader.follower, whole))
        for reader in known.values()
        if reader.mark is not None or reader.follower.generation
    ]
    if readers or READ not in key.permissions:
        return readers
    return [FeedReader(feed, key, ALL_GROUPS, whole, None)]


async def oldest_changes(database: Database, readers: Iterable[FeedReader]) -> dict[tuple[int, int], int]:
    """Return by feed and position when the first change after it was recorded."""
    wanted: dict[int, set[int]] = {}
    for reader in readers:
        if reader.counts_changes and reader.follower.position < reader.feed.head_seq:
            wanted.setdefault(reader.feed.feed_id, set()).add(reader.follower.position)
    found: dict[tuple[int, int], int] = {}
    for number, positions in wanted.items():
        for row in await database.all(_OLDEST, feed_id=number, positions=json_text(sorted(positions))):
            times = [at_ms for at_ms in (row["record_ms"], row["version_ms"]) if at_ms is not None]
            if times:
                found[number, row["position"]] = min(times)
    return found
