"""The channels: a number that never changes, a rule for addresses, and words. Source: docs/interface.md section D7."""

from collections.abc import Callable

import msgspec
from stoplist_addresses import RULES


class Channel(msgspec.Struct, frozen=True):
    """A way to reach people. `canonical` raises AddressError, whose text is for the sender of the address.

    `title` is its name as a heading, `in_sentence` within a sentence; `description` says what its records mean.
    """

    name: str
    number: int
    canonical: Callable[[str], str]
    title: str
    in_sentence: str
    description: str


# The number is part of every feed_id: it must never change, and never be reused for another channel.
_CHANNELS = (
    Channel("email", 1, RULES["email"], "E-mail", "e-mail", "People who want no e-mail."),
    Channel("sms", 2, RULES["sms"], "SMS", "SMS", "People who want no text messages."),
    Channel("phone", 3, RULES["phone"], "Phone", "phone", "People who want no calls."),
)
CHANNELS = {channel.name: channel for channel in _CHANNELS}
_MAX_CHANNELS = 16


def feed_id(organization_id: int, channel: Channel) -> int:
    """Return the number of the feed of an organization and channel: computed from both, so no query is needed."""
    return organization_id * _MAX_CHANNELS + channel.number


def channel_name(number: int) -> str:
    """Return the name of the channel of the feed of this number."""
    return next(channel.name for channel in _CHANNELS if channel.number == number % _MAX_CHANNELS)
