"""Opt-outs that the service lost when it was put back to an earlier state, submitted again out of the mirror."""

from collections.abc import Iterable, Iterator

from stoplist_client.client import Client
from stoplist_client.mirror import FeedSynced, Mirror
from stoplist_client.model import Item, Record

# What only the service itself may state (docs/interface.md section D6).
_NOT_OURS = ("correction",)


def submit_missing(client: Client, mirror: Mirror, feeds: Iterable[FeedSynced]) -> int:
    """All that the mirror has of these feeds and the service lost was submitted again; how many there were.

    With the time, group, reason and source that they had, so that nothing newer is undone. They are missing no more
    once the next synchronisation has read them. May be repeated. Source: docs/interface.md section D1.
    """
    submitted = 0
    for feed in feeds:
        by_group: dict[str | None, list[Item]] = {}
        for record in _missing(mirror, feed):
            by_group.setdefault(record.group_id, []).append(_item(record))
        for group_id, items in by_group.items():
            client.unsubscribe(
                feed.channel, items, org_slug=feed.org_slug, group_id=group_id, all_groups=group_id is None
            )
            submitted += len(items)
    return submitted


def _missing(mirror: Mirror, feed: FeedSynced) -> Iterator[Record]:
    return mirror.missing(feed.channel, org_slug=feed.org_slug) if feed.missing else iter(())


def _item(record: Record) -> Item:
    reason = None if record.reason in _NOT_OURS else record.reason
    return Item(record.address, record.occurred_at, reason, record.source)
