"""From items as they were sent to acts that can be decided, or the reason why not.

Source: docs/interface.md sections D6 and D7.
"""

from collections.abc import Sequence

import msgspec
from stoplist_addresses import AddressError

from stoplist import rfc3339
from stoplist.slicing import in_slices
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.model import (
    CONSENT,
    MAX_AHEAD_MS,
    RESUBSCRIBED,
    UNSUBSCRIBE_REASON,
    UNSUBSCRIBED,
    BadItem,
    Item,
    ItemError,
    Status,
)


class Act(msgspec.Struct, gc=False):
    """What a person did, checked; `address` is canonical, `occurred_ms` None where no time was stated."""

    item_index: int
    address: str
    status: Status
    occurred_ms: int | None
    reason: str
    source: str | None


class Unacceptable(Exception):
    """Why an item cannot be accepted, and which of its fields is at fault."""

    def __init__(self, text: str, *, field: str) -> None:
        super().__init__(text)
        self.field = field


async def read_acts(
    items: Sequence[Item | BadItem], channel: Channel, *, now_ms: int, first_index: int = 0
) -> tuple[list[Act], list[ItemError]]:
    """The acts of the good items and the errors of the bad ones, each in the order of the items.

    `first_index` is the place of the first of `items` in the batch.
    """
    acts: list[Act] = []
    errors: list[ItemError] = []
    index = first_index
    async for part in in_slices(items):
        for item in part:
            if isinstance(item, BadItem):
                errors.append(ItemError(index, item.error))
            else:
                try:
                    acts.append(act_of(item, channel, now_ms, index))
                except (AddressError, Unacceptable) as error:
                    errors.append(ItemError(index, str(error)))
            index += 1
    return acts, errors


def act_of(item: Item, channel: Channel, now_ms: int, item_index: int = 0) -> Act:
    """The act that the item reports; AddressError for its address, Unacceptable for anything else."""
    source = item.source
    if source is not None and "\0" in source:
        raise Unacceptable("source contains a NUL character: send text alone.", field="source")
    address = channel.canonical(item.address)
    if item.status == RESUBSCRIBED:
        return Act(item_index, address, RESUBSCRIBED, _time_of_consent(item, now_ms), _reason_of_consent(item), source)
    occurred_ms = None if item.occurred_at is None else _time_ms(item.occurred_at, now_ms + MAX_AHEAD_MS)
    if item.reason == CONSENT:
        raise Unacceptable(
            "reason consent is for resubscriptions alone: an opt-out has another one, or none.", field="reason"
        )
    return Act(item_index, address, UNSUBSCRIBED, occurred_ms, item.reason or UNSUBSCRIBE_REASON, source)


def _time_of_consent(item: Item, now_ms: int) -> int:
    if item.occurred_at is None:
        raise Unacceptable(
            "occurred_at is missing: a resubscription needs the time at which the person consented.",
            field="occurred_at",
        )
    return _time_ms(item.occurred_at, now_ms)


def _reason_of_consent(item: Item) -> str:
    if item.reason not in (None, CONSENT):
        raise Unacceptable(
            "reason must be consent for a resubscription: send consent, or leave it out.", field="reason"
        )
    return CONSENT


def _time_ms(text: str, last_ms: int) -> int:
    """The stated time in milliseconds since 1970 UTC; Unacceptable if it is malformed or after `last_ms`."""
    at_ms = rfc3339.parse_ms(text)
    if at_ms is None:
        raise Unacceptable(
            "occurred_at must be an RFC 3339 date-time with an offset, such as 2026-03-01T09:30:00Z "
            "or 2026-03-01T10:30:00.250+01:00.",
            field="occurred_at",
        )
    if at_ms > last_ms:
        raise Unacceptable(
            "occurred_at lies in the future: send the time at which the person acted.", field="occurred_at"
        )
    return at_ms
