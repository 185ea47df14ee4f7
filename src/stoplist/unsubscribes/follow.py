"""Look up addresses, and follow every change of a feed. Nothing here waits for a batch that is being written.

Records are read by `seq`. Numbers are assigned in commit order, so a reader at one number has seen every smaller one.
Source: docs/interface.md section D6.
"""

from collections.abc import Sequence
from operator import itemgetter

from stoplist_addresses import AddressError

from stoplist import rfc3339
from stoplist.actor import Actor
from stoplist.db import Row
from stoplist.db.query import json_text, load_queries
from stoplist.errors import BadRequest, InsufficientScope, InvalidCursor
from stoplist.organizations.target import Target, TargetGroup, find_target, group_ids
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.cursor import UNUSABLE_CURSOR, make_cursor, read_cursor
from stoplist.unsubscribes.feed import Feed, find_feed, open_feed
from stoplist.unsubscribes.model import ALL_GROUPS, MAX_EXAMINED, OptOutStores, Page, Record, RequestedTarget

_QUERIES = load_queries(__package__)
_AFTER = _QUERIES["records_after"]
_OF_ADDRESSES = _QUERIES["records_of_addresses"]
_OF_GROUP = _QUERIES["records_of_group"]
_SEQ_AFTER = _QUERIES["seq_after"]

_EXAMINED_AT_ONCE = 2_000
_START = 0


async def follow(
    actor: Actor, stores: OptOutStores, channel: Channel, requested: RequestedTarget, *, limit: int, cursor: str | None
) -> Page:
    """Return the next records after `cursor` (None: from the start), in the order in which they last changed.

    With a group, return the records that apply to it: its own and the all-groups ones. A page then examines at most
    50 000 records. Errors, in this order: InsufficientScope, UnauthorizedOrganization, InvalidCursor.
    """
    target = await _find_readable_target(actor, stores, requested)
    # A cursor is bound to the feed's generation, so the first one to follow a feed opens it.
    feed = await find_feed(stores.database, target, channel)
    if feed is None and cursor is not None:
        raise InvalidCursor(
            UNUSABLE_CURSOR
        )  # no cursor was ever given out, and a refused request must not store anything
    feed = feed or await open_feed(stores.database, target, channel)
    group_id = target.group.group_id if target.group is not None else None
    after = _START
    if cursor is not None:
        after = read_cursor(
            stores.secret_keys, cursor, feed_id=feed.feed_id, generation=feed.generation, group_id=group_id
        )
        if after > feed.head_seq:
            raise InvalidCursor(UNUSABLE_CURSOR)  # the database was restored without renewing the generations
    if target.group is None:
        rows = await stores.database.all(_AFTER, feed_id=feed.feed_id, after=after, most=limit)
        position = rows[-1]["seq"] if rows else after
        is_end = len(rows) < limit
    else:
        rows, position = await _page_of_group(stores, feed, target.group, after, limit)
        is_end = False
    return Page(
        items=await _records(stores, target, rows),
        next_cursor=make_cursor(
            stores.secret_keys, feed_id=feed.feed_id, generation=feed.generation, group_id=group_id, seq=position
        ),
        # The head was read before the records: changes written since then belong to the next page.
        has_more=not is_end and position < feed.head_seq,
    )


async def look_up(
    actor: Actor, stores: OptOutStores, channel: Channel, requested: RequestedTarget, *, addresses: Sequence[str]
) -> Page:
    """Return the records of exactly these addresses, ordered by `seq`, in one page.

    With a group, return the records that apply to it.
    Errors, in this order: InsufficientScope, UnauthorizedOrganization, BadRequest for an unacceptable address.
    """
    target = await _find_readable_target(actor, stores, requested)
    looked_up: list[str] = []
    async for part in in_slices(addresses, check_every=1):  # the rule for a single address may take a millisecond
        looked_up += [_canonical(address, channel) for address in part]
    rows = await stores.database.all(
        _OF_ADDRESSES,
        feed_id=feed_id(target.organization_id, channel),
        addresses=json_text(list(dict.fromkeys(looked_up))),
    )
    if target.group is not None:
        rows = [row for row in rows if row["group_no"] in (ALL_GROUPS, target.group.number)]
    rows.sort(key=itemgetter("seq"))
    return Page(items=await _records(stores, target, rows), next_cursor=None, has_more=False, looked_up=looked_up)


async def _find_readable_target(actor: Actor, stores: OptOutStores, requested: RequestedTarget) -> Target:
    if "read" not in actor.may:
        raise InsufficientScope("This key lacks the permission read: ask an administrator for it.")
    return await find_target(stores.database, actor.id, org_slug=requested.org_slug, group_id=requested.group_id)


def _canonical(address: str, channel: Channel) -> str:
    try:
        return channel.canonical(address)
    except AddressError as error:
        hint = ""
        if channel.name != "email" and address.startswith(" "):
            hint = " In a query string + means a space: send it as %2B."
        raise BadRequest(f"{error}{hint}", parameter="address") from None


async def _page_of_group(
    stores: OptOutStores, feed: Feed, group: TargetGroup, after: int, limit: int
) -> tuple[list[Row], int]:
    """Read slices of records until the page is full or MAX_EXAMINED records were examined; return rows and position."""
    rows: list[Row] = []
    for _ in range(MAX_EXAMINED // _EXAMINED_AT_ONCE):
        bound = await stores.database.one(_SEQ_AFTER, feed_id=feed.feed_id, after=after, examined=_EXAMINED_AT_ONCE)
        # A record that changes meanwhile moves from this range to the end of the feed; none ever enters the range.
        until = feed.head_seq if bound is None else bound["seq"]
        part = await stores.database.all(
            _OF_GROUP,
            feed_id=feed.feed_id,
            after=after,
            until=until,
            group_no=group.number,
            most=limit - len(rows),
        )
        rows += part
        if len(rows) == limit:
            return rows, rows[-1]["seq"]
        after = max(after, until)
        if bound is None:
            break
        await yield_to_loop()
    return rows, after


async def _records(stores: OptOutStores, target: Target, rows: list[Row]) -> list[Record]:
    groups = await _group_ids_by_number(stores, target, rows)
    records: list[Record] = []
    async for part in in_slices(rows):
        for id_, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq in part:
            records.append(
                Record(
                    id_,
                    target.org_slug,
                    groups[group_no],
                    address,
                    status,
                    reason,
                    source,
                    rfc3339.format_ms(occurred_ms),
                    rfc3339.format_ms(recorded_ms),
                    seq,
                )
            )
    return records


async def _group_ids_by_number(stores: OptOutStores, target: Target, rows: list[Row]) -> dict[int, str | None]:
    """Return the group_id of every number in `rows`, without a query if they are all the target's own groups."""
    by_number: dict[int, str | None] = {ALL_GROUPS: None}
    by_number.update(group for group in (target.group, target.default_group) if group is not None)
    if not by_number.keys() >= {row["group_no"] for row in rows}:
        by_number.update(await group_ids(stores.database, target.organization_id))
    return by_number
