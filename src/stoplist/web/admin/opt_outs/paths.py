"""What the path of a page on opt-outs names: a channel, and the number of a change.

Source: docs/interface.md section D10.
"""

from stoplist.errors import Missing
from stoplist.unsubscribes.channel import CHANNELS, Channel
from stoplist.web.admin.fields import number_of
from stoplist.web.admin.page_request import PageRequest


def channel_of(request: PageRequest) -> Channel:
    """The channel in the path; Missing where it is none."""
    channel = CHANNELS.get(request.path["channel"])
    if channel is None:
        raise Missing(f"There is no such channel: it is one of {', '.join(CHANNELS)}.")
    return channel


def change_of(request: PageRequest) -> int:
    """The number of a change in the path; Missing where it is none."""
    return read_change(request.path["seq"])


def read_change(text: str) -> int:
    """The number of a change; Missing where the text is none."""
    number = number_of(text)
    if number is None:
        raise Missing("There is no change of this number.")
    return number


def after_of(request: PageRequest) -> int | None:
    """The number after which a page of a list begins; None for the first page."""
    text = request.query.text("after")
    return read_change(text) if text else None


def feed_path(org_slug: str, channel: Channel) -> str:
    """Where the changes of one organization and channel are listed."""
    return f"/unsubscribes/{org_slug}/{channel.name}"
