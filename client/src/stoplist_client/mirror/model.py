"""What a mirror tells: what it follows, what a synchronisation did, and the verdict on an address."""

from typing import Literal, TypeAlias

import msgspec

from stoplist_client.model import Channel
from stoplist_client.redacted import Redacted

Verdict: TypeAlias = Literal["allowed", "barred", "invalid"]


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """An organization and channel that the mirror follows.

    `age_s` is how long ago it was as new as the service; None until it was read to its end once, and nothing is
    answered before. `records` is how many there are, or have been read so far. `missing`: see Mirror.missing.
    """

    org_slug: str
    channel: Channel
    records: int
    age_s: float | None
    is_rebuilding: bool
    missing: int


class FeedSynced(msgspec.Struct, frozen=True, kw_only=True):
    """What a synchronisation did so far to one organization and channel.

    `records` counts the changes that were applied; `was_rebuilt` says that all was read anew because the service had
    been restored; `missing` is how many opt-outs are here and, it seems, lost there (see Mirror.missing).
    """

    org_slug: str
    channel: Channel
    pages: int = 0
    records: int = 0
    was_rebuilt: bool = False
    missing: int = 0


class Synced(msgspec.Struct, frozen=True):
    """What a synchronisation did, for each organization and channel; and in sum."""

    feeds: tuple[FeedSynced, ...]

    @property
    def pages(self) -> int:
        """How many pages were applied."""
        return sum(feed.pages for feed in self.feeds)

    @property
    def records(self) -> int:
        """How many changes were applied."""
        return sum(feed.records for feed in self.feeds)

    @property
    def was_rebuilt(self) -> bool:
        """Whether anything was read anew."""
        return any(feed.was_rebuilt for feed in self.feeds)

    @property
    def missing(self) -> int:
        """How many opt-outs the service seems to have lost; submit them again (Mirror.missing)."""
        return sum(feed.missing for feed in self.feeds)


class Checked(Redacted, msgspec.Struct, frozen=True, gc=False):
    """The verdict on an address as it was given; `canonical` is None and `problem` says why if it is invalid."""

    address: str
    canonical: str | None
    verdict: Verdict
    problem: str | None = None

    def __repr__(self) -> str:
        return f"Checked({self.verdict})"  # addresses are somebody's: they stay out of logs
