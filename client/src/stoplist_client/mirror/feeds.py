"""The organizations and channels that a mirror follows, and its service."""

import re
import sqlite3
from collections.abc import Callable, Iterable

import msgspec

from stoplist_client.errors import ConfigurationError, MirrorError, NotMirrored
from stoplist_client.mirror.file import transaction
from stoplist_client.mirror.model import Followed
from stoplist_client.model import CHANNELS

_SLUG = re.compile("[a-z0-9][a-z0-9-]{0,62}")

_FOLLOW = """
INSERT INTO feeds (org_slug, channel, is_only) VALUES (:org_slug, :channel, 1)
ON CONFLICT (org_slug, channel) DO NOTHING
"""
_RECOUNT = "UPDATE feeds SET is_only = (SELECT count(*) = 1 FROM feeds other WHERE other.channel = feeds.channel)"
_LOST = "SELECT count(*) FROM missing WHERE feed_no = ? AND settled_s IS NULL"
_BOUND = "SELECT base_url FROM about"
_ALL = """
SELECT feeds.org_slug, feeds.channel, feeds.synced_s, feeds.copy_no IS NOT NULL, feeds.building_no IS NOT NULL,
  coalesce((SELECT records FROM copies WHERE copies.copy_no = coalesce(feeds.copy_no, feeds.building_no)), 0),
  (SELECT count(*) FROM missing WHERE missing.feed_no = feeds.feed_no), feeds.diverged
FROM feeds ORDER BY feeds.feed_no
"""


class Feed(msgspec.Struct, frozen=True):
    """A followed organization and channel, with its number in this file."""

    feed_no: int
    org_slug: str
    channel: str


def follow(connection: sqlite3.Connection, channels: Iterable[str], org_slug: str) -> None:
    """Follow these channels of the organization, unless they are followed already."""
    with transaction(connection):
        for channel in channels:
            connection.execute(_FOLLOW, {"org_slug": org_slug, "channel": channel})
        connection.execute(_RECOUNT)


def unfollow(connection: sqlite3.Connection, channels: Iterable[str], org_slug: str | None) -> None:
    """Stop following these channels, whose copies become unused. Raises MirrorError if any has missing opt-outs."""
    with transaction(connection):
        for feed in [find_feed(connection, channel, org_slug) for channel in channels]:
            (lost,) = connection.execute(_LOST, (feed.feed_no,)).fetchone()
            if lost:
                raise MirrorError(
                    f"The service lost opt-outs on the channel {feed.channel} of {feed.org_slug} that only this mirror "
                    f"has, {lost} in all: submit them again (Mirror.missing) or settle them (Mirror.settle) before you "
                    "unfollow."
                )
            for table in ("missing", "feeds"):
                connection.execute(f"DELETE FROM {table} WHERE feed_no = ?", (feed.feed_no,))  # noqa: S608 - constants
        connection.execute(_RECOUNT)


def bind(connection: sqlite3.Connection, base_url: str) -> None:
    """Bind the mirror to this service for good. Raises ConfigurationError if it belongs to another one."""
    (bound,) = connection.execute(_BOUND).fetchone()
    if bound is None:
        with transaction(connection):
            connection.execute("UPDATE about SET base_url = ? WHERE base_url IS NULL", (base_url,))
            (bound,) = connection.execute(_BOUND).fetchone()
    if bound != base_url:
        raise ConfigurationError(f"This is a mirror of {bound}, but the client's service is {base_url}.")


def all_feeds(connection: sqlite3.Connection) -> list[Feed]:
    """Return all feeds in the order in which they were followed."""
    return [Feed(*row) for row in connection.execute("SELECT feed_no, org_slug, channel FROM feeds ORDER BY feed_no")]


def followed(connection: sqlite3.Connection, now_s: Callable[[], float]) -> tuple[Followed, ...]:
    """Return the public description of all feeds."""
    return tuple(
        Followed(
            org_slug=org_slug,
            channel=channel,
            records=records,
            age_s=now_s() - synced_s if answers else None,
            is_rebuilding=bool(answers and is_building),
            missing=missing,
            is_diverged=bool(diverged),
        )
        for org_slug, channel, synced_s, answers, is_building, records, missing, diverged in connection.execute(_ALL)
    )


def find_feed(connection: sqlite3.Connection, channel: str, org_slug: str | None) -> Feed:
    """Return the feed of the organization, or the only one of the channel if no organization is named.

    Raises NotMirrored if there is none, and ConfigurationError if there are several.
    """
    matches = [feed for feed in all_feeds(connection) if feed.channel == channel and org_slug in (None, feed.org_slug)]
    if not matches:
        of_organization = "" if org_slug is None else f" of {org_slug}"
        raise NotMirrored(
            f"The mirror does not follow the channel {channel}{of_organization}: follow it, and synchronise."
        )
    if len(matches) > 1:
        raise several_organizations_error(channel)
    return matches[0]


def several_organizations_error(channel: str) -> ConfigurationError:
    """Return the error for a call without org_slug if several organizations are followed."""
    return ConfigurationError(f"The mirror follows several organizations on the channel {channel}: name the org_slug.")


def checked_channel(channel: str) -> str:
    """Return the channel. Raises ConfigurationError if it does not exist."""
    if channel not in CHANNELS:
        raise unknown_channel_error()
    return channel


def unknown_channel_error() -> ConfigurationError:
    """Return the error for an unknown channel."""
    return ConfigurationError(f"There is no such channel: use one of {', '.join(CHANNELS)}.")


def checked_slug(org_slug: str) -> str:
    """Return the slug. Raises ConfigurationError if it is malformed."""
    if not isinstance(org_slug, str) or not _SLUG.fullmatch(org_slug):
        raise ConfigurationError("org_slug must be up to 63 lower-case letters, digits and hyphens, such as `acme`.")
    return org_slug
