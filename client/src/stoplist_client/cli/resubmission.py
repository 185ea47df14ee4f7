"""Opt-outs that the service lost when it was put back to an earlier state, submitted again out of the mirror."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from stoplist_client.cli.messages import spoken
from stoplist_client.client import Client
from stoplist_client.errors import ApiError, BadRequest, InsufficientScope, InvalidItem, UnauthorizedOrganization
from stoplist_client.mirror import Followed, Mirror
from stoplist_client.model import Item, Record, Submitted

# What the service has against these opt-outs, as for a group that is retired; it may take others.
_AGAINST_THESE = (BadRequest, InsufficientScope, InvalidItem, UnauthorizedOrganization)


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """So many opt-outs of one feed and group were not taken, and why. `group_id` is None for all groups."""

    org_slug: str
    channel: str
    group_id: str | None
    opt_outs: int
    problem: str


class Resubmission(msgspec.Struct, frozen=True):
    """How many opt-outs were submitted again, and which were refused."""

    submitted: int
    refused: tuple[Refused, ...]


def submit_missing(client: Client, mirror: Mirror) -> Resubmission:
    """All that the mirror has and the service lost was submitted again, but for what the service refuses.

    With the time, group, reason and source that they had, so that nothing newer is undone. From the next
    synchronisation on the service alone decides about them; those that are refused stay, and go on barring. May be
    repeated. Raises what would come of any submission, as where the service is away. Source: docs/interface.md
    section D1.
    """
    submitted, refused = 0, []
    for feed in mirror.feeds():
        by_group: dict[str | None, list[Record]] = {}
        if feed.missing:
            for record in mirror.missing(feed.channel, org_slug=feed.org_slug):
                by_group.setdefault(record.group_id, []).append(record)
        for group_id, lost in by_group.items():
            sums, refusal = _sent(client, feed, group_id, lost)
            bad = {error.item_index for error in sums.item_errors}
            taken = [record for at, record in enumerate(lost[: sums.received]) if at not in bad]
            # One that is outranked over there changes nothing, so the feed would never say that it was seen.
            mirror.settle(feed.channel, taken, org_slug=feed.org_slug)
            submitted += len(taken)
            refused += [
                Refused(
                    org_slug=feed.org_slug, channel=feed.channel, group_id=group_id, opt_outs=number, problem=problem
                )
                for problem, number in _problems(sums, refusal, len(lost))
            ]
    return Resubmission(submitted, tuple(refused))


def _sent(
    client: Client, feed: Followed, group_id: str | None, lost: list[Record]
) -> tuple[Submitted, ApiError | None]:
    """What became of those that were answered, the first ones; and what was said about the others."""
    items = [Item(record.address, record.occurred_at, record.reason, record.source) for record in lost]
    org_slug, is_all = feed.org_slug, group_id is None
    try:
        return client.unsubscribe(
            feed.channel, items, org_slug=org_slug, group_id=group_id, all_groups=is_all, lenient=True
        ), None
    except _AGAINST_THESE as refusal:
        return refusal.submitted or Submitted(), refusal


def _problems(sums: Submitted, refusal: ApiError | None, number: int) -> Iterator[tuple[str, int]]:
    yield from Counter(error.item_error for error in sums.item_errors).items()
    if refusal is not None:
        yield spoken(refusal), number - sums.received
