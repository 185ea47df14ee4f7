"""One opt-out or resubscription entered by a person, through the same submission that partners use.

Source: docs/interface.md sections D6 and D11.
"""

from typing import get_args

import msgspec
from msgspec import UNSET
from stoplist_addresses import AddressError

from stoplist import rfc3339
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.errors import InvalidItem, Refused
from stoplist.organizations.target import Target, find_target_of_person
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.decision import BatchDecision
from stoplist.unsubscribes.follow import seq_of_record
from stoplist.unsubscribes.items import UnacceptableItem, read_act
from stoplist.unsubscribes.model import (
    CONSENT,
    MAX_SOURCE_CHARS,
    RESUBSCRIBED,
    UNSUBSCRIBED,
    Item,
    OptOutStores,
    Result,
    SentReason,
    Status,
)
from stoplist.unsubscribes.storing import BeforeCommit
from stoplist.unsubscribes.submit import submit_to

MANUAL: SentReason = "manual"
_ACTIONS = {UNSUBSCRIBED: "unsubscribe.by_hand", RESUBSCRIBED: "resubscribe.by_hand"}
_INPUT_NAMES = {"source": "stated_reason"}
# Errors of a batch are for programs; people get a text about the field that they see.
_TIME_HINT = "Enter the time at which the person acted, in UTC. It must not be in the future."


class ManualEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a manual entry, as in the answer to a batch, and the record as it is now.

    `result`: `created` or `updated` changed the record; `unchanged`: it had that status already; `outranked`: the
    person did something else at `latest_act_ms`, later than the stated time, and that stands. `submission_id` is None
    if nothing had to be stored. Times are milliseconds since 1970 UTC.
    """

    submission_id: str | None
    org_slug: str
    channel: str
    group_id: str | None
    id: str
    address: str
    result: Result
    status: Status
    latest_act_ms: int | None
    seq: int


async def record_manually(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    *,
    org_slug: str,
    group_id: str | None = None,
    all_groups: bool = False,
    address: str,
    status: str = UNSUBSCRIBED,
    occurred_at: str | None = None,
    reason: str | None = None,
    stated_reason: str,
) -> ManualEntry:
    """Store the act durably, with `stated_reason` as its source; may be repeated.

    `occurred_at` as in a batch: RFC 3339; required for a resubscription, by default now for an opt-out. `reason`: by
    default `manual`, or `consent` for a resubscription. With neither `group_id` nor `all_groups`, the default group is
    used. Raise Missing, Forbidden, or Refused with the input at fault as its field.
    """
    target = await _find_target(actor, stores, org_slug=org_slug, group_id=group_id, all_groups=all_groups)
    item = _build_item(address, status, occurred_at, reason, stated_reason)
    _validate(item, channel, stores.clock.now_ms())
    record_in_audit = _audit_writer(actor, stores, item, channel, org_slug)
    try:
        answer = await submit_to(
            actor, stores, channel, target, [item], all_groups=all_groups, before_commit=record_in_audit
        )
    except InvalidItem as error:  # acceptable a moment ago: the clock was set back
        raise Refused(error.extra["item_error"]) from None
    (result,) = [] if answer.items is UNSET else answer.items
    return ManualEntry(
        submission_id=answer.submission_id,
        org_slug=org_slug,
        channel=channel.name,
        group_id=answer.group_id,
        id=result.id,
        address=result.address,
        result=result.result,
        status=result.status,
        latest_act_ms=None if result.latest_act_at is UNSET else rfc3339.parse_ms(result.latest_act_at),
        seq=await _latest_seq(stores, target, channel, result.id, result.address),
    )


async def _find_target(
    actor: Actor, stores: OptOutStores, *, org_slug: str, group_id: str | None, all_groups: bool
) -> Target:
    if group_id is not None and all_groups:
        raise Refused("Choose one group, or all groups.", field="group_id")
    target = await find_target_of_person(actor, stores.database, org_slug=org_slug, group_id=group_id)
    if not all_groups and target.group is None and target.default_group is None:
        raise Refused(
            f"The organization {org_slug} has no default group: choose one of its groups, or all groups.",
            field="group_id",
        )
    return target


def _audit_writer(actor: Actor, stores: OptOutStores, item: Item, channel: Channel, org_slug: str) -> BeforeCommit:
    """Return what records the entry in the audit, in the transaction that stores it."""

    async def record(transaction: Transaction, submission_id: str, decision: BatchDecision) -> None:
        (result,) = decision.results
        await trail.record(
            transaction,
            actor,
            _ACTIONS[item.status or UNSUBSCRIBED],
            submission_id,
            at_ms=stores.clock.now_ms(),
            organizations=(org_slug,),
            org_slug=org_slug,
            channel=channel.name,
            record_id=result.id,
            result=result.result,
        )

    return record


def _build_item(address: str, status: str, occurred_at: str | None, reason: str | None, stated_reason: str) -> Item:
    """Return the item that a partner would have sent; raise Refused for an invalid status, reason or source."""
    if status not in get_args(Status):
        raise Refused(f"The status must be {UNSUBSCRIBED} or {RESUBSCRIBED}.", field="status")
    if reason is not None and reason not in get_args(SentReason):
        raise Refused(f"There is no such reason: choose one of {', '.join(get_args(SentReason))}.", field="reason")
    source = stated_reason.strip()
    if not 0 < len(source) <= MAX_SOURCE_CHARS:
        raise Refused(
            f"Enter in 1 to {MAX_SOURCE_CHARS} characters why, and how you know. This text has {len(source)}.",
            field="stated_reason",
        )
    default_reason = CONSENT if status == RESUBSCRIBED else MANUAL
    return msgspec.convert(
        {
            "address": address,
            "status": status,
            "occurred_at": occurred_at,
            "reason": reason or default_reason,
            "source": source,
        },
        Item,
    )


def _validate(item: Item, channel: Channel, now_ms: int) -> None:
    """Raise Refused, with the input at fault, if a batch would not accept the item."""
    try:
        read_act(item, channel, now_ms)
    except AddressError as error:
        raise Refused(str(error), field="address") from None
    except UnacceptableItem as error:
        text = _TIME_HINT if error.field == "occurred_at" else str(error)
        raise Refused(text, field=_INPUT_NAMES.get(error.field, error.field)) from None


async def _latest_seq(stores: OptOutStores, target: Target, channel: Channel, record_id: str, address: str) -> int:
    """Return the number of the record's latest change."""
    return await seq_of_record(stores, feed_id(target.organization_id, channel), address, record_id)
