"""Look up addresses, and follow every change of a feed. Nothing here waits for a batch that is being written.

Records are read by `seq`. Numbers are assigned in commit order, so a reader at one number has seen every smaller one.
Source: docs/interface.md section D6.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from msgspec import UNSET
from stoplist_addresses import AddressError

from stoplist import rfc3339
from stoplist.actor import Actor
from stoplist.db import Row
from stoplist.db.query import json_text, load_queries
from stoplist.errors import BadRequest, InsufficientScope, InvalidCursor
from stoplist.organizations.target import ALL_GROUPS, Target, TargetGroup, find_target, group_ids, lost_group
from stoplist.slicing import Work, in_slices, in_timed_slices, yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.cursor import UNUSABLE_CURSOR, make_cursor, read_cursor
from stoplist.unsubscribes.erased import digest_of, erased_form, key_bytes
from stoplist.unsubscribes.feed import Feed, find_feed, open_feed
from stoplist.unsubscribes.model import MAX_EXAMINED, OptOutStores, Page, PageState, Record, RequestedTarget

_QUERIES = load_queries(__package__)
_AFTER = _QUERIES["records_after"]
_LOOK_UP = _QUERIES["look_up"]
_OF_ADDRESSES = _QUERIES["records_of_addresses"]
_OF_GROUP = _QUERIES["records_of_group"]
_SEQ_AFTER = _QUERIES["seq_after"]

# The positions of some of the columns of each statement that reads records.
_ID, _GROUP_NO, _ADDRESS, _SEQ = 0, 1, 2, 8
_EXAMINED_AT_ONCE = 2_000
_START = 0
_END = 2**63 - 1


class FollowedPage(NamedTuple):
    """A page, and the feed, of which everything up to its `head_seq` was looked at.

    `position` is the number at which the presented cursor stands, None without one. `group_no` is that of the group.
    """

    page: Page
    feed: Feed
    position: int | None
    group_no: int


async def follow(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    requested: RequestedTarget,
    *,
    limit: int,
    cursor: str | None,
    default: Target | None = None,
) -> FollowedPage:
    """Return the next records after `cursor` (None: from the start), in the order in which they last changed.

    With a group, return the records that apply to it: its own and the all-groups ones. A page then examines at most
    50 000 records. `default` is the client's default organization, if the caller has just read it.
    Errors, in this order: InsufficientScope, UnauthorizedOrganization, InvalidCursor.
    """
    target = await _find_readable_target(actor, stores, requested, default)
    # A cursor is bound to the feed's generation, so the first one to follow a feed opens it.
    feed = await find_feed(stores.database, target, channel)
    group_id = target.group.group_id if target.group is not None else None
    presented = None if cursor is None else _presented_position(stores, cursor, feed, group_id)
    feed = feed or await open_feed(stores.database, target, channel)
    after = _START if presented is None else presented
    state: PageState | None = None
    if target.group is None:
        rows, head_seq, state = await _page_with_state(stores, feed, after, limit)
        position = rows[-1]["seq"] if rows else after
    else:
        rows, head_seq, position = await _page_of_group(stores, feed, target.group, after, limit)
    feed = feed._replace(head_seq=head_seq)
    # The head is of the same snapshot as the records: later changes belong to the next page.
    has_more = position < feed.head_seq and (target.group is not None or len(rows) == limit)
    items = await _records(stores, target, rows)
    has_erased = feed.digest_key is not None and None in map(attrgetter("address"), items)
    page = Page(
        items=items,
        digest_key=feed.digest_key or UNSET if has_erased else UNSET,
        next_cursor=make_cursor(
            stores.secret_keys, feed_id=feed.feed_id, generation=feed.generation, group_id=group_id, seq=position
        ),
        has_more=has_more,
        state=state if state is not None and state.seq == position else None,
    )
    return FollowedPage(page, feed, presented, target.group_no)


async def look_up(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    requested: RequestedTarget,
    *,
    addresses: Sequence[str],
    default: Target | None = None,
    work: Work | None = None,
) -> Page:
    """Return the records of exactly these addresses, ordered by `seq`, in one page.

    With a group, return the records that apply to it. `default` is the client's default organization, if the caller has
    just read it.
    Errors, in this order: InsufficientScope, UnauthorizedOrganization, BadRequest for an unacceptable address.
    """
    target = await _find_readable_target(actor, stores, requested, default)
    looked_up = [_canonical(addresses[0], channel)]
    if len(addresses) > 1:
        # The rule may take half a millisecond for each address.
        async for part in in_timed_slices(addresses[1:], work or Work(), check_every=1):
            looked_up += [_canonical(address, channel) for address in part]
    found = await find_rows(stores, feed_id(target.organization_id, channel), looked_up)
    rows = found.rows
    if target.group is not None:
        rows = [row for row in rows if row[_GROUP_NO] in (ALL_GROUPS, target.group.number)]
    rows.sort(key=itemgetter(_SEQ))
    items = await _records(stores, target, rows, found.erased)
    return Page(items=items, next_cursor=None, has_more=False, looked_up=looked_up)


class FoundRows(NamedTuple):
    """The rows of some addresses, in no order; and by its stored form the address of an erased person as asked for."""

    rows: list[Sequence[Any]]
    erased: Mapping[str, str]


async def seq_of_record(stores: OptOutStores, feed: int, address: str, record_id: str) -> int:
    """Return the number of the latest change of a record of this canonical address, under either of its forms."""
    found = await find_rows(stores, feed, [address])
    (seq,) = [row[_SEQ] for row in found.rows if row[_ID] == record_id]
    return int(seq)


async def find_rows(stores: OptOutStores, feed: int, addresses: Sequence[str]) -> FoundRows:
    """Return the records of these canonical addresses in a feed, under either form, all of one moment."""
    while True:
        known = stores.digest_keys.get(feed)
        erased: dict[str, str] = {}
        if known is not None:
            key = key_bytes(known)
            erased = {erased_form(key, address): address for address in addresses}
        rows = await _rows_of(stores, feed, addresses, list(erased))
        at = next((at for at, row in enumerate(rows) if not row[_ID]), None)
        if at is None:
            return FoundRows(rows, erased)
        digest_key = rows.pop(at)[_ADDRESS]
        if digest_key == known:
            return FoundRows(rows, erased)
        stores.digest_keys[feed] = digest_key


def _presented_position(stores: OptOutStores, cursor: str, feed: Feed | None, group_id: str | None) -> int:
    """Return the number at which the cursor stands; raise InvalidCursor if it is not one of this feed and group."""
    if feed is None:  # no cursor was ever given out, and a refused request must not store anything
        raise InvalidCursor(UNUSABLE_CURSOR)
    position = read_cursor(
        stores.secret_keys, cursor, feed_id=feed.feed_id, generation=feed.generation, group_id=group_id
    )
    if position > feed.head_seq:  # the database was restored without renewing the generations
        raise InvalidCursor(UNUSABLE_CURSOR)
    return position


async def _find_readable_target(
    actor: Actor, stores: OptOutStores, requested: RequestedTarget, default: Target | None
) -> Target:
    if "read" not in actor.may:
        raise InsufficientScope("This key lacks the permission read: ask an administrator for it.")
    return await find_target(
        stores.database, actor.id, org_slug=requested.org_slug, group_id=requested.group_id, default=default
    )


async def _rows_of(
    stores: OptOutStores, feed: int, addresses: Sequence[str], erased: Sequence[str]
) -> list[Sequence[Any]]:
    if len(addresses) == 1:
        return list(await stores.database.rows(_LOOK_UP, feed, addresses[0], erased[0] if erased else ""))
    every = list(dict.fromkeys((*addresses, *erased)))
    return list(await stores.database.all(_OF_ADDRESSES, feed_id=feed, addresses=json_text(every)))


def _canonical(address: str, channel: Channel) -> str:
    try:
        return channel.canonical(address)
    except AddressError as error:
        hint = ""
        if channel.name != "email" and address.startswith(" "):
            hint = " In a query string + means a space: send it as %2B."
        raise BadRequest(f"{error}{hint}", parameter="address") from None


async def _page_with_state(
    stores: OptOutStores, feed: Feed, after: int, limit: int
) -> tuple[list[Row], int, PageState | None]:
    """Return the next records, and the head and state of the feed, all of one moment; None unless it is complete."""
    rows = await stores.database.all(_AFTER, feed_id=feed.feed_id, after=after, most=limit)
    row = _take_feed_row(rows)
    head_seq, state_seq = row["group_no"], row["occurred_ms"]
    if state_seq != head_seq:
        return rows, head_seq, None
    return rows, head_seq, PageState(seq=state_seq, records=row["recorded_ms"], digest=row["address"])


def _take_feed_row(rows: list[Row]) -> Row:
    """Remove and return the row of the feed: the first, but SQL does not promise it."""
    return rows.pop(next(at for at, row in enumerate(rows) if not row["id"]))


async def _page_of_group(
    stores: OptOutStores, feed: Feed, group: TargetGroup, after: int, limit: int
) -> tuple[list[Row], int, int]:
    """Read slices of records until the page is full or MAX_EXAMINED records were examined.

    Return rows, the head of the feed at the moment of the last slice, and the position that the page has reached.
    """
    rows: list[Row] = []
    head_seq = feed.head_seq
    for _ in range(MAX_EXAMINED // _EXAMINED_AT_ONCE):
        bound = await stores.database.one(_SEQ_AFTER, feed_id=feed.feed_id, after=after, examined=_EXAMINED_AT_ONCE)
        # A record that changes meanwhile moves from this range to the end of the feed; none ever enters the range.
        # The last slice ends at the head, which is of its own snapshot.
        part = await stores.database.all(
            _OF_GROUP,
            feed_id=feed.feed_id,
            after=after,
            until=_END if bound is None else bound["seq"],
            group_no=group.number,
            most=limit - len(rows),
        )
        head_seq = _take_feed_row(part)["group_no"]
        rows += part
        if len(rows) == limit:
            return rows, head_seq, rows[-1]["seq"]
        after = max(after, head_seq if bound is None else bound["seq"])
        if bound is None:
            break
        await yield_to_loop()
    return rows, head_seq, after


async def _records(
    stores: OptOutStores, target: Target, rows: Sequence[Sequence[Any]], erased: Mapping[str, str] | None = None
) -> list[Record]:
    """Return the records of the rows; `erased` has the addresses that were asked for, by their erased form."""
    records: list[Record] = []
    if not rows:
        return records
    groups = await _group_ids_by_number(stores, target, rows)
    async for part in in_slices(rows):
        for id_, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq in part:
            digest = digest_of(address)
            records.append(
                Record(
                    id_,
                    target.org_slug,
                    groups[group_no],
                    address if digest is None else (erased or {}).get(address),
                    status,
                    reason,
                    source,
                    rfc3339.format_ms(occurred_ms),
                    rfc3339.format_ms(recorded_ms),
                    seq,
                    UNSET if digest is None else digest,
                )
            )
    return records


async def _group_ids_by_number(
    stores: OptOutStores, target: Target, rows: Sequence[Sequence[Any]]
) -> dict[int, str | None]:
    """Return the group_id of every number in `rows`, without a query if they are all the target's own groups.

    StoreUnavailable if there is no group of such a number, because a restore has lost it.
    """
    by_number: dict[int, str | None] = {ALL_GROUPS: None}
    by_number.update(group for group in (target.group, target.default_group) if group is not None)
    numbers = {row[_GROUP_NO] for row in rows}
    if not by_number.keys() >= numbers:
        by_number.update(await group_ids(stores.database, target.organization_id))
        if not by_number.keys() >= numbers:
            raise lost_group()
    return by_number
