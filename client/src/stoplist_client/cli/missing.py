"""Opt-outs that the service lost when it was put back to an earlier state, submitted again out of the mirror."""

from collections.abc import Iterable

from stoplist_client.client import Client
from stoplist_client.mirror import FeedSynced, Mirror
from stoplist_client.model import Item, Record

# What only the service itself may state (docs/interface.md section D6).
_NOT_OURS = ("correction",)


def submit_missing(client: Client, mirror: Mirror, feeds: Iterable[FeedSynced]) -> int:
    """All that the mirror has of these feeds and the service lost was submitted again; how many there were.

    With the time, group, reason and source that they had, so that nothing newer is undone. From the next
    synchronisation on the service alone decides about them. May be repeated. Source: docs/interface.md section D1.
    """
    submitted = 0
    for feed in feeds:
        if not feed.missing:
            continue
        lost = list(mirror.missing(feed.channel, org_slug=feed.org_slug))
        by_group: dict[str | None, list[Item]] = {}
        for record in lost:
            by_group.setdefault(record.group_id, []).append(_item(record))
        for group_id, items in by_group.items():
            client.unsubscribe(
                feed.channel, items, org_slug=feed.org_slug, group_id=group_id, all_groups=group_id is None
            )
        # One that is outranked over there changes nothing, so the feed would never say that it was seen.
        mirror.settle(feed.channel, lost, org_slug=feed.org_slug)
        submitted += len(lost)
    return submitted


def _item(record: Record) -> Item:
    reason = None if record.reason in _NOT_OURS else record.reason
    return Item(record.address, record.occurred_at, reason, record.source)
