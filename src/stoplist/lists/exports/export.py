"""Exports the records of an organization and channel at one moment. Source: docs/interface.md section D12."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

import msgspec

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.lists.exports.layouts import CSV, LAYOUTS, Layout
from stoplist.lists.exports.snapshot import State, history_until, states_at
from stoplist.organizations.store import find_organization, require_admin_of
from stoplist.organizations.target import ALL_GROUPS, Target, group_ids, lost_group
from stoplist.records.filters import group_filter_number, group_number, require_known_words, seq_bounds
from stoplist.records.history import labels_of_keys
from stoplist.slicing import in_slices
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.cursor import make_cursor
from stoplist.unsubscribes.erased import key_fingerprint
from stoplist.unsubscribes.feed import Feed, find_feed, open_feed
from stoplist.unsubscribes.model import OptOutStores

_IS_WANTED = Callable[[State], bool]


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an export; a filter that is None leaves nothing out.

    `group_id`: only records that matter to the group, its own and those for all groups, as a partner who follows the
    group reads them. `only_group`: a group's own records, or ALL_GROUPS_FILTER, as the pages filter. Of the two times
    (ms UTC), when the record was recorded, the first is inclusive. `has_history`: every version, and who sent it.
    """

    org_slug: str
    group_id: str | None = None
    only_group: str | None = None
    status: str | None = None
    reason: str | None = None
    recorded_from_ms: int | None = None
    recorded_until_ms: int | None = None
    layout: str = CSV
    has_history: bool = False


class Export:
    """An export that has begun: its moment is fixed, and it is in the audit.

    `next_cursor` is where a partner goes on following. `digest_key` is the key of the digests that stand for erased
    persons, None if the feed has none. `records` counts the lines read from `parts` so far.
    """

    def __init__(
        self,
        next_cursor: str,
        digest_key: str | None,
        layout: Layout,
        pages: AsyncIterator[list[State]],
        labels: "_Labels",
    ) -> None:
        self.next_cursor, self.digest_key = next_cursor, digest_key
        self.records = 0
        self._layout, self._pages, self._labels = layout, pages, labels

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the file in parts. To be read once; other tasks run in between."""
        yield self._layout.head()
        async for states in self._pages:
            labels = await self._labels.of(states)
            async for some in in_slices(states, check_every=100):
                yield self._layout.lines(some, labels)
            self.records += len(states)


class _Labels:
    """The labels of keys that the actor sees, looked up once."""

    def __init__(self, actor: Actor, stores: OptOutStores) -> None:
        self._actor, self._stores = actor, stores
        self._known: dict[str, str | None] = {}

    async def of(self, states: Sequence[State]) -> dict[str, str]:
        """Return the labels of the keys that sent the states, by `client_id`."""
        clients = {state.actor_id for state in states if state.actor_kind == "client" and state.actor_id}
        if unknown := clients - self._known.keys():
            found = await labels_of_keys(self._actor, self._stores.database, unknown)
            self._known |= dict.fromkeys(unknown) | found
        return {client: label for client in clients if (label := self._known[client]) is not None}


async def begin_export(actor: Actor, stores: OptOutStores, channel: Channel, request: ExportRequest) -> Export:
    """Fix the moment of an export and record it in the audit. Nothing else is read yet.

    Raise Missing for an organization that the actor may not see, Forbidden for one that the actor may only see, Refused
    (`group`, `status`, `reason`) for a filter that nothing can match. Closed organizations can be exported, too.
    """
    require_admin_of(actor, request.org_slug)
    organization = await find_organization(stores.database, request.org_slug)
    target = Target(organization.organization_id, organization.slug, group=None, default_group=None)
    feed = await find_feed(stores.database, target, channel)
    # After the head, so that every group of a record up to there is known.
    groups = await group_ids(stores.database, organization.organization_id)
    is_wanted = _filter(request, groups)
    feed = feed or await open_feed(stores.database, target, channel)
    await _record(actor, stores, channel, request, feed)
    if request.has_history:
        pages = history_until(stores.database, feed.feed_id, head=feed.head_seq)
    else:
        low, high = await seq_bounds(
            stores.database, feed.feed_id, from_ms=request.recorded_from_ms, until_ms=request.recorded_until_ms
        )
        pages = states_at(stores.database, feed.feed_id, head=feed.head_seq, after=max(0, low - 1), until=high)
    cursor = make_cursor(
        stores.secret_keys,
        feed_id=feed.feed_id,
        generation=feed.generation,
        group_id=request.group_id,
        seq=feed.head_seq,
    )
    layout = LAYOUTS[request.layout](
        organization.slug, groups, has_history=request.has_history, key_fingerprint=_fingerprint(feed)
    )
    digest_key = feed.digest_key if feed.has_erased else None
    return Export(cursor, digest_key, layout, _filtered(pages, is_wanted, groups), _Labels(actor, stores))


def _fingerprint(feed: Feed) -> str:
    """Return the fingerprint of the digest key, whose first digest may come while the file is being written."""
    return "" if feed.digest_key is None else key_fingerprint(feed.digest_key)


async def _record(actor: Actor, stores: OptOutStores, channel: Channel, request: ExportRequest, feed: Feed) -> None:
    """Record the export before any of it is read: whoever has only a part of it has that part."""
    detail = {name: value for name, value in msgspec.structs.asdict(request).items() if value}
    slug = detail.pop("org_slug")

    async def record(transaction: Transaction) -> None:
        await trail.record(
            transaction,
            actor,
            "organization.export",
            slug,
            at_ms=stores.clock.now_ms(),
            organizations=(slug,),
            channel=channel.name,
            until_seq=feed.head_seq,
            **detail,
        )

    await stores.database.write(record)


def _filter(request: ExportRequest, groups: dict[int, str]) -> _IS_WANTED | None:
    """Return the test of a state, or None if the export holds all of them."""
    require_known_words(status=request.status, reason=request.reason)
    numbers = {group_id: number for number, group_id in groups.items()}
    tests: list[_IS_WANTED] = []
    if request.group_id is not None:
        own = group_number(request.group_id, numbers, org_slug=request.org_slug)
        tests.append(lambda state: state.group_no in (ALL_GROUPS, own))
    if request.only_group is not None:
        only = group_filter_number(request.only_group, numbers, org_slug=request.org_slug)
        tests.append(lambda state: state.group_no == only)
    if request.status is not None:
        tests.append(lambda state: state.status == request.status)
    if request.reason is not None:
        tests.append(lambda state: state.reason == request.reason)
    if (first_ms := request.recorded_from_ms) is not None:
        tests.append(lambda state: state.recorded_ms >= first_ms)
    if (end_ms := request.recorded_until_ms) is not None:
        tests.append(lambda state: state.recorded_ms < end_ms)
    return (lambda state: all(test(state) for test in tests)) if tests else None


async def _filtered(
    pages: AsyncIterator[list[State]], is_wanted: _IS_WANTED | None, groups: Mapping[int, str]
) -> AsyncIterator[list[State]]:
    """Yield the wanted states; StoreUnavailable for one whose group a restore has lost."""
    known = {ALL_GROUPS, *groups}
    async for states in pages:
        wanted = states if is_wanted is None else [state for state in states if is_wanted(state)]
        if not known.issuperset(state.group_no for state in wanted):
            raise lost_group()
        yield wanted
