"""Shows how far each key has followed each feed, whether it is behind, and since when it has a change.

What all processes have written is shown: it is up to a minute old.
Source: docs/interface.md section D14, Propagation. Reasons: docs/decisions/0028-propagation.md.
"""

from collections.abc import Mapping, Sequence

import msgspec

from stoplist.actor import ADMINISTER, Actor
from stoplist.db import Database
from stoplist.db.query import json_text, load_queries
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations, show_organization
from stoplist.organizations.target import ALL_GROUPS, GroupName, group_names
from stoplist.proof.feed_readers import FeedReader, find_feeds, find_readers, oldest_changes
from stoplist.proof.follower import MUST_FOLLOW, Mark, Standing, standing
from stoplist.unsubscribes.channel import CHANNELS, Channel, feed_id
from stoplist.unsubscribes.model import OptOutStores

_SINCE = load_queries(__package__)["since_when"]

HOUR_MS = 3_600_000
WATCHER = Actor(kind="system", id="propagation", may=frozenset((ADMINISTER,)))
"""The actor of background work that looks at every feed."""


class KeyPropagation(msgspec.Struct, frozen=True, kw_only=True):
    """The standing of a key in one feed; `group_id` is None for the whole feed. Times are in milliseconds.

    `position` is the highest number presented in this generation of the feed, for the group or for the whole feed.
    `changes_behind` is an upper bound. `oldest_ms`: when the oldest change that it has not taken was recorded.
    `reads_anew_ms`: since when it rereads the whole feed.
    """

    client_id: str
    label: str
    org_slug: str
    channel: str
    group_id: str | None
    group_name: str | None
    standing: Standing
    mark: Mark | None
    position: int
    changes_behind: int
    oldest_ms: int | None
    reads_anew_ms: int | None
    asked_ms: int | None

    @property
    def is_behind(self) -> bool:
        return self.standing == "behind"

    @property
    def is_watched(self) -> bool:
        """Return whether the key can be behind: it has followed the feed or must, and was not marked as stopped."""
        return self.standing not in ("never", "stopped") or self.mark == MUST_FOLLOW


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """A key and since when, at the latest, it has a change; None if nothing shows that it has."""

    client_id: str
    label: str
    since_ms: int | None


async def propagation(
    actor: Actor,
    stores: OptOutStores,
    *,
    hours: int,
    org_slug: str | None = None,
    channel: Channel | None = None,
    only_watched: bool = False,
) -> list[KeyPropagation]:
    """Return how each active key stands in each feed that the actor sees: who is behind first, then by organization.

    With `only_watched`, only those that can be behind, at a cost that does not depend on the number of other keys.
    `hours` is the propagation limit, STOPLIST_PROPAGATION_HOURS. Closed organizations are left out. Raise Missing for
    an organization that the actor may not see.
    """
    database, now_ms = stores.database, stores.clock.now_ms()
    organizations = await _organizations(actor, database, org_slug)
    feeds = await find_feeds(database, organizations, [channel] if channel else CHANNELS.values())
    if not feeds:
        return []
    readers = await find_readers(actor, database, feeds, with_never=not only_watched)
    oldest = await oldest_changes(database, readers)
    names = await group_names(database, {feed.organization.organization_id for feed in feeds.values()})
    known = _of_known_groups(readers, names)
    found = [_judged(reader, oldest, names, now_ms=now_ms, limit_ms=hours * HOUR_MS) for reader in known]
    return sorted((one for one in found if one.is_watched or not only_watched), key=_order)


async def since_when(
    actor: Actor, stores: OptOutStores, *, org_slug: str, channel: Channel, group_id: str | None, seq: int
) -> list[Since]:
    """Return for each active key since when it has the change `seq` of a record of this group (None: all groups).

    A key has it by the whole feed or by the record's group; a record for all groups comes with every group. The
    earliest counts: some program of this key had everything up to here at that moment. Keys without a time come first.
    Raise Missing for an organization that the actor may not see.
    """
    database, organization = stores.database, await show_organization(actor, stores.database, org_slug)
    readers = await find_readers(actor, database, await find_feeds(database, [organization], [channel]))
    names = await group_names(database, [organization.organization_id])
    bearing = [
        (reader.key.client_id, reader.group_no)
        for reader in _of_known_groups(readers, names)
        if reader.group_no == ALL_GROUPS
        or group_id in (None, names[organization.organization_id, reader.group_no].group_id)
    ]
    rows = await database.all(
        _SINCE,
        feed_id=feed_id(organization.organization_id, channel),
        readers=json_text(dict(enumerate(bearing))),
        seq=seq,
    )
    known: dict[str, list[int]] = {}
    for row in rows:
        if row["since_ms"] is not None:
            known.setdefault(row["client_id"], []).append(row["since_ms"])
    labels = {reader.key.client_id: reader.key.label for reader in readers}
    found = [
        Since(client_id=key, label=label, since_ms=min(known.get(key, ()), default=None))
        for key, label in labels.items()
    ]
    return sorted(found, key=lambda one: (one.since_ms is not None, one.label, one.client_id))


async def _organizations(actor: Actor, database: Database, org_slug: str | None) -> list[Organization]:
    if org_slug is None:
        found = await list_organizations(actor, database)
    else:
        found = [await show_organization(actor, database, org_slug)]
    return [organization for organization in found if not organization.is_closed]


def _of_known_groups(readers: Sequence[FeedReader], names: Mapping[tuple[int, int], GroupName]) -> list[FeedReader]:
    """Return the readers without those of groups that a restore has lost: nothing is claimed of these."""
    return [
        reader
        for reader in readers
        if reader.group_no == ALL_GROUPS or (reader.feed.organization.organization_id, reader.group_no) in names
    ]


def _judged(
    reader: FeedReader,
    oldest: Mapping[tuple[int, int], int],
    names: Mapping[tuple[int, int], GroupName],
    *,
    now_ms: int,
    limit_ms: int,
) -> KeyPropagation:
    feed, follower = reader.feed, reader.follower
    oldest_ms = oldest.get((feed.feed_id, follower.position))
    group = names.get((feed.organization.organization_id, reader.group_no))
    stands = standing(
        follower, reader.mark, head_seq=feed.head_seq, oldest_ms=oldest_ms, now_ms=now_ms, limit_ms=limit_ms
    )
    return KeyPropagation(
        client_id=reader.key.client_id,
        label=reader.key.label,
        org_slug=feed.organization.slug,
        channel=feed.channel,
        group_id=None if group is None else group.group_id,
        group_name=None if group is None else group.name,
        standing=stands,
        mark=reader.mark,
        position=follower.position,
        changes_behind=max(0, feed.head_seq - follower.position),
        oldest_ms=oldest_ms,
        reads_anew_ms=follower.reads_anew_since_ms,
        asked_ms=follower.asked_ms,
    )


def _order(one: KeyPropagation) -> tuple[object, ...]:
    return not one.is_behind, one.org_slug, one.channel, one.label, one.client_id, one.group_id or ""
