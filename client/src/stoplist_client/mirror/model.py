"""The results of a mirror: followed feeds, synchronisations, and verdicts on addresses."""

from typing import Literal, TypeAlias

import msgspec

from stoplist_client.model import Channel
from stoplist_client.redacted import Redacted

Verdict: TypeAlias = Literal["allowed", "barred", "invalid"]


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """An organization and channel that the mirror follows.

    `age_s` is the time since it was as new as the service, or None until it was first read to its end; before that,
    the mirror does not answer. `records` is the number of records so far. `missing`: see Mirror.missing.
    """

    org_slug: str
    channel: Channel
    records: int
    age_s: float | None
    is_rebuilding: bool
    missing: int


class FeedSynced(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a synchronisation so far for one organization and channel.

    `records` counts the changes that were applied. `was_rebuilt` is True if everything was read again because the
    service was restored. `missing` is the number of opt-outs that the service seems to have lost (see Mirror.missing).
    """

    org_slug: str
    channel: Channel
    pages: int = 0
    records: int = 0
    was_rebuilt: bool = False
    missing: int = 0


class Synced(msgspec.Struct, frozen=True):
    """The result of a synchronisation, for each organization and channel, and in total."""

    feeds: tuple[FeedSynced, ...]

    @property
    def pages(self) -> int:
        """The number of pages that were applied."""
        return sum(feed.pages for feed in self.feeds)

    @property
    def records(self) -> int:
        """The number of changes that were applied."""
        return sum(feed.records for feed in self.feeds)

    @property
    def was_rebuilt(self) -> bool:
        """Return whether any feed was read again from the beginning."""
        return any(feed.was_rebuilt for feed in self.feeds)

    @property
    def missing(self) -> int:
        """The number of opt-outs that the service seems to have lost; submit them again (see Mirror.missing)."""
        return sum(feed.missing for feed in self.feeds)


class Checked(Redacted, msgspec.Struct, frozen=True, gc=False):
    """The verdict on an address as it was given. If it is invalid, `canonical` is None and `problem` is the reason."""

    address: str
    canonical: str | None
    verdict: Verdict
    problem: str | None = None

    def __repr__(self) -> str:
        return f"Checked({self.verdict})"  # without the address, which must not appear in logs
