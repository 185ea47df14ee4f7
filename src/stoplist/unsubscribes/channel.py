"""The channels: a name, a number that never changes, and what an address is. Source: docs/interface.md section D7."""

from collections.abc import Callable

import msgspec
from stoplist_addresses import RULES


class Channel(msgspec.Struct, frozen=True):
    """A way to reach people. `canonical` raises AddressError, whose text is for the one who sent the address."""

    name: str
    number: int
    canonical: Callable[[str], str]


# The number is part of every feed_id: it must never change, nor be given to another channel.
CHANNELS = {name: Channel(name, number, RULES[name]) for name, number in (("email", 1), ("sms", 2), ("phone", 3))}
_MOST_CHANNELS = 16


def feed_id(organization_id: int, channel: Channel) -> int:
    """The number of the feed of an organization and channel: made of both, so that it need not be looked up."""
    return organization_id * _MOST_CHANNELS + channel.number
