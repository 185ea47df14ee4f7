"""The channels: a name, a number that never changes, and a rule for addresses. Source: docs/interface.md section D7."""

from collections.abc import Callable

import msgspec
from stoplist_addresses import RULES


class Channel(msgspec.Struct, frozen=True):
    """A way to reach people. `canonical` raises AddressError, whose text is for the sender of the address."""

    name: str
    number: int
    canonical: Callable[[str], str]


# The number is part of every feed_id: it must never change, and never be reused for another channel.
CHANNELS = {name: Channel(name, number, RULES[name]) for name, number in (("email", 1), ("sms", 2), ("phone", 3))}
_MAX_CHANNELS = 16


def feed_id(organization_id: int, channel: Channel) -> int:
    """Return the number of the feed of an organization and channel: computed from both, so no query is needed."""
    return organization_id * _MAX_CHANNELS + channel.number
