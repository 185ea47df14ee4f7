"""The results of a mirror: followed feeds, synchronisations, and verdicts on addresses."""

from typing import Literal, TypeAlias

import msgspec

from stoplist_client.model import Channel
from stoplist_client.redacted import Redacted

Verdict: TypeAlias = Literal["allowed", "barred", "invalid"]


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """An organization and channel that the mirror follows.

    `age_s` is the time since it was as new as the service, or None until it was first read to its end; before that,
    the mirror does not answer. `records` is the number of records so far. `missing`: see Mirror.missing. `is_diverged`:
    the copy was found to differ from the service, and has not been found to agree since.
    """

    org_slug: str
    channel: Channel
    records: int
    age_s: float | None
    is_rebuilding: bool
    missing: int
    is_diverged: bool = False


class FeedSynced(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a synchronisation so far for one organization and channel.

    `records` counts the changes that were applied. `was_rebuilt` is True if everything was read again because the
    service was restored, or because the copy differed from the service; `was_diverged` then is True, too. `missing` is
    the number of opt-outs that the service seems to have lost (see Mirror.missing). `is_diverged` is True if a copy
    that was read anew differs again.
    """

    org_slug: str
    channel: Channel
    pages: int = 0
    records: int = 0
    was_rebuilt: bool = False
    missing: int = 0
    was_diverged: bool = False
    is_diverged: bool = False


class Synced(msgspec.Struct, frozen=True):
    """The result of a synchronisation, for each organization and channel, and in total.

    After `sync` with `wait`, `feeds` are those that were answered. `pause_s` is how long to pause before the next call
    with `wait`, so that other programs keep half of the key's limit.
    """

    feeds: tuple[FeedSynced, ...]
    pause_s: float = 0.0

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


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """Figures computed from the rows of a feed's copy: the number of records, and their digest.

    Both are those of the service's `state` of that feed. Source: docs/interface.md section D14.
    """

    org_slug: str
    channel: Channel
    records: int
    digest: str


class Checked(Redacted, msgspec.Struct, frozen=True, gc=False):
    """The verdict on an address as it was given. If it is invalid, `canonical` is None and `problem` is the reason."""

    address: str
    canonical: str | None
    verdict: Verdict
    problem: str | None = None

    def __repr__(self) -> str:
        return f"Checked({self.verdict})"  # without the address, which must not appear in logs
