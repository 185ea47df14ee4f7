"""Reads the channel and the number of a change from the paths of opt-out pages.

Source: docs/interface.md section D10.
"""

from stoplist.errors import Missing
from stoplist.unsubscribes.channel import CHANNELS, Channel
from stoplist.web.admin.fields import parse_number
from stoplist.web.admin.page_request import PageRequest


def channel_of(request: PageRequest) -> Channel:
    """Return the channel in the path. Raises Missing."""
    channel = CHANNELS.get(request.path["channel"])
    if channel is None:
        raise Missing(f"This channel does not exist. The channels are {', '.join(CHANNELS)}.")
    return channel


def change_of(request: PageRequest) -> int:
    """Return the number of the change in the path. Raises Missing."""
    return read_change(request.path["seq"])


def read_change(text: str) -> int:
    """Return the text as the number of a change. Raises Missing."""
    number = parse_number(text)
    if number is None:
        raise Missing("There is no change with this number.")
    return number


def after_of(request: PageRequest) -> int | None:
    """Return the number after which a page of a list begins, or None for the first page."""
    text = request.query.text("after")
    return read_change(text) if text else None


def feed_path(org_slug: str, channel: Channel) -> str:
    """Return the path of the feed of an organization and channel."""
    return f"/unsubscribes/{org_slug}/{channel.name}"
