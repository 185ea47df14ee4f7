"""Turn items as they were sent into acts, or into the reason why they cannot be accepted.

Source: docs/interface.md sections D6 and D7.
"""

from collections.abc import Sequence

import msgspec
from stoplist_addresses import AddressError

from stoplist import rfc3339
from stoplist.control_characters import with_spaces
from stoplist.slicing import Work, in_timed_slices
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
    """A validated act of a person. `address` is canonical; `occurred_ms` is None if no time was stated."""

    item_index: int
    address: str
    status: Status
    occurred_ms: int | None
    reason: str
    source: str | None


class UnacceptableItem(Exception):
    """An item that cannot be accepted. The text says why; `field` names the field at fault."""

    def __init__(self, text: str, *, field: str) -> None:
        super().__init__(text)
        self.field = field


async def read_acts(
    items: Sequence[Item | BadItem], channel: Channel, *, now_ms: int, work: Work, first_index: int = 0
) -> tuple[list[Act], list[ItemError]]:
    """Return the acts of the valid items and the errors of the others, each in the order of the items.

    `first_index` is the index of the first of `items` in the batch.
    """
    acts: list[Act] = []
    errors: list[ItemError] = []
    index = first_index
    async for part in in_timed_slices(items, work):
        for item in part:
            if isinstance(item, BadItem):
                errors.append(ItemError(index, item.error))
            else:
                try:
                    acts.append(read_act(item, channel, now_ms, index))
                except (AddressError, UnacceptableItem) as error:
                    errors.append(ItemError(index, str(error)))
            index += 1
    return acts, errors


def read_act(item: Item, channel: Channel, now_ms: int, item_index: int = 0) -> Act:
    """Return the act that the item reports.

    Raise AddressError for its address, UnacceptableItem for anything else.
    """
    source = item.source
    if source is not None and "\0" in source:
        raise UnacceptableItem("source contains a NUL character: send text alone.", field="source")
    if source is not None:
        source = with_spaces(source)
    address = channel.canonical(item.address)
    if item.status == RESUBSCRIBED:
        return Act(item_index, address, RESUBSCRIBED, _consent_time_ms(item, now_ms), _consent_reason(item), source)
    occurred_ms = None if item.occurred_at is None else _parse_time_ms(item.occurred_at, now_ms + MAX_AHEAD_MS)
    if item.reason == CONSENT:
        raise UnacceptableItem(
            "reason consent is for resubscriptions alone: an opt-out has another one, or none.", field="reason"
        )
    return Act(item_index, address, UNSUBSCRIBED, occurred_ms, item.reason or UNSUBSCRIBE_REASON, source)


def _consent_time_ms(item: Item, now_ms: int) -> int:
    if item.occurred_at is None:
        raise UnacceptableItem(
            "occurred_at is missing: a resubscription needs the time at which the person consented.",
            field="occurred_at",
        )
    return _parse_time_ms(item.occurred_at, now_ms)


def _consent_reason(item: Item) -> str:
    if item.reason not in (None, CONSENT):
        raise UnacceptableItem(
            "reason must be consent for a resubscription: send consent, or leave it out.", field="reason"
        )
    return CONSENT


def _parse_time_ms(text: str, last_ms: int) -> int:
    """Return the stated time in milliseconds since 1970 UTC; raise if it is malformed or after `last_ms`."""
    at_ms = rfc3339.parse_ms(text)
    if at_ms is None:
        raise UnacceptableItem(
            "occurred_at must be an RFC 3339 date-time with an offset, such as 2026-03-01T09:30:00Z "
            "or 2026-03-01T10:30:00.250+01:00.",
            field="occurred_at",
        )
    if at_ms > last_ms:
        raise UnacceptableItem(
            "occurred_at lies in the future: send the time at which the person acted.", field="occurred_at"
        )
    return at_ms
