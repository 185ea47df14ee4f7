"""Submit a batch: read and decide without a lock, then lock, check for other writes, and write.

Source: docs/interface.md section D6; the order of errors: section D4. docs/decisions/0009-feeds.md.
"""

from collections.abc import Sequence

from msgspec import UNSET

from stoplist.actor import Actor
from stoplist.errors import DefaultGroupNotConfigured, InsufficientScope, InvalidItem
from stoplist.organizations.target import ALL_GROUPS, Target, find_target
from stoplist.slicing import Work
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.feed import find_feed, open_feed
from stoplist.unsubscribes.items import Act, read_acts
from stoplist.unsubscribes.model import (
    CREATED,
    OUTRANKED,
    RESUBSCRIBED,
    UNCHANGED,
    UNSUBSCRIBED,
    UPDATED,
    BadItem,
    Item,
    ItemError,
    OptOutStores,
    RequestedTarget,
    Submission,
)
from stoplist.unsubscribes.record_reader import RecordReader
from stoplist.unsubscribes.storing import BeforeCommit, decide_batch, store_batch
from stoplist.unsubscribes.validated_batch import ValidatedBatch

_PERMISSION_FOR = {UNSUBSCRIBED: "unsubscribe", RESUBSCRIBED: "resubscribe"}
_ITEMS_PER_READ = 5_000  # half of the largest batch: its records are read while the other half is validated


async def submit(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    requested: RequestedTarget,
    items: Sequence[Item | BadItem],
    *,
    is_lenient: bool = False,
    is_minimal: bool = False,
    work: Work | None = None,
) -> Submission:
    """Store every act of the batch, durably; may be repeated. If `work.pause` raises, nothing is stored.

    Errors, in this order: InsufficientScope, UnauthorizedOrganization, DefaultGroupNotConfigured, InvalidItem (with
    `is_lenient` the good items are stored instead). StoreUnavailable at any time. A refused batch stores nothing.
    """
    _check_permissions(actor, items)
    target = await find_target(stores.database, actor.id, org_slug=requested.org_slug, group_id=requested.group_id)
    return await submit_to(
        actor,
        stores,
        channel,
        target,
        items,
        all_groups=requested.all_groups,
        is_lenient=is_lenient,
        is_minimal=is_minimal,
        work=work,
    )


async def submit_to(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    target: Target,
    items: Sequence[Item | BadItem],
    *,
    all_groups: bool = False,
    is_lenient: bool = False,
    is_minimal: bool = False,
    before_commit: BeforeCommit | None = None,
    work: Work | None = None,
) -> Submission:
    """Do what `submit` does, for an actor and a target that the caller has authorized.

    `before_commit` writes the audit in the same transaction, and runs only if something is written.
    """
    work = work or Work()
    group_no, group_id = _group(target, all_groups=all_groups)
    # The feed's `writes` is read before the records, so that the lock reveals any later write.
    feed = await find_feed(stores.database, target, channel)
    now_ms = stores.clock.now_ms()
    reader = RecordReader(stores.database, feed, group_no)
    try:
        acts, errors = await _read_items(items, channel, now_ms, reader, work, is_lenient=is_lenient)
        batch = ValidatedBatch(
            actor, feed_id(target.organization_id, channel), group_no, group_id, acts, len(items), now_ms
        )
        decision = await decide_batch(batch, await reader.records(), work.pause)
    finally:
        await reader.end()
    submission_id = None
    if decision.has_writes:
        if feed is None:  # not earlier: a refused batch must not open a feed
            await open_feed(stores.database, target, channel)
        decision, submission_id = await store_batch(
            stores.database,
            batch,
            decision,
            clock=stores.clock,
            seen=feed,
            pause=work.pause,
            before_commit=before_commit,
            has_audit=before_commit is not None,
        )
    return Submission(
        submission_id=submission_id,
        org_slug=target.org_slug,
        group_id=group_id,
        received=len(items),
        created=decision.counts[CREATED],
        updated=decision.counts[UPDATED],
        unchanged=decision.counts[UNCHANGED],
        outranked=decision.counts[OUTRANKED],
        items=UNSET if is_minimal else decision.results,
        item_errors=errors if is_lenient else UNSET,
    )


async def _read_items(
    items: Sequence[Item | BadItem],
    channel: Channel,
    now_ms: int,
    reader: RecordReader,
    work: Work,
    *,
    is_lenient: bool,
) -> tuple[list[Act], list[ItemError]]:
    """Return the acts and errors of all items, and start to read the records that the acts meet."""
    acts: list[Act] = []
    errors: list[ItemError] = []
    for at in range(0, len(items), _ITEMS_PER_READ):
        some_acts, some_errors = await read_acts(
            items[at : at + _ITEMS_PER_READ], channel, now_ms=now_ms, work=work, first_index=at
        )
        acts += some_acts
        errors += some_errors
        if some_acts:
            reader.start(some_acts)
    if errors and not is_lenient:
        raise _invalid_items(errors, len(items))
    return acts, errors


def _check_permissions(actor: Actor, items: Sequence[Item | BadItem]) -> None:
    # An item whose status cannot be read has the default one: permission comes before items.
    statuses = {item.status or UNSUBSCRIBED for item in items}
    needed = {_PERMISSION_FOR[status] for status in statuses}
    missing = needed - actor.may
    if missing:
        raise InsufficientScope(
            f"This key lacks the permission {' and '.join(sorted(missing))}: ask an administrator for it, "
            "or leave out the items that need it."
        )


def _group(target: Target, *, all_groups: bool) -> tuple[int, str | None]:
    if all_groups:
        return ALL_GROUPS, None
    group = target.group or target.default_group
    if group is None:
        raise DefaultGroupNotConfigured(
            "The organization has no default group: send a group_id, or all_groups: true to opt out of everything.",
            org_slug=target.org_slug,
        )
    return group


def _invalid_items(errors: list[ItemError], received: int) -> InvalidItem:
    first = errors[0]
    return InvalidItem(
        f"{len(errors)} of {received} items cannot be accepted, so nothing was stored. Correct those in item_errors, "
        "or send Prefer: handling=lenient to store the others.",
        item_index=first.item_index,
        item_error=first.item_error,
        item_errors=errors,
    )
