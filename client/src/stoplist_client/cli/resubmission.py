"""Submits opt-outs again from the mirror that the service lost when it was restored to an earlier state."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from stoplist_client.cli.messages import message_of
from stoplist_client.client import Client
from stoplist_client.errors import ApiError, BadRequest, InsufficientScope, InvalidItem, UnauthorizedOrganization
from stoplist_client.mirror import Followed, Mirror
from stoplist_client.model import Item, Record, Submitted

# Refusals of particular opt-outs, for example because their group was retired. The service may accept others.
_ITEM_REFUSALS = (BadRequest, InsufficientScope, InvalidItem, UnauthorizedOrganization)


class RefusedOptOuts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of opt-outs of one feed and group that were refused for one reason; `group_id` None: all groups."""

    org_slug: str
    channel: str
    group_id: str | None
    opt_outs: int
    problem: str


class Resubmission(msgspec.Struct, frozen=True):
    """The result of `submit_missing`."""

    submitted: int
    refused: tuple[RefusedOptOuts, ...]


def submit_missing(client: Client, mirror: Mirror) -> Resubmission:
    """Submit all opt-outs again that the mirror has and the service lost.

    Each keeps its time, group, reason and source, so that nothing newer is undone. The service decides about accepted
    opt-outs from the next synchronisation on; refused ones stay in the mirror and go on barring. May be repeated.
    Raises the errors of any submission, for example if the service is unavailable.
    Source: docs/interface.md section D1.
    """
    submitted, refused = 0, []
    for feed in mirror.feeds():
        by_group: dict[str | None, list[Record]] = {}
        if feed.missing:
            for record in mirror.missing(feed.channel, org_slug=feed.org_slug):
                by_group.setdefault(record.group_id, []).append(record)
        for group_id, lost in by_group.items():
            sums, refusal = _submit(client, feed, group_id, lost)
            refused_indices = {error.item_index for error in sums.item_errors}
            accepted = [record for at, record in enumerate(lost[: sums.received]) if at not in refused_indices]
            # An opt-out that is outranked at the service changes nothing there, so the feed would never show it.
            mirror.settle(feed.channel, accepted, org_slug=feed.org_slug)
            submitted += len(accepted)
            refused += [
                RefusedOptOuts(
                    org_slug=feed.org_slug, channel=feed.channel, group_id=group_id, opt_outs=number, problem=problem
                )
                for problem, number in _problem_counts(sums, refusal, len(lost))
            ]
    return Resubmission(submitted, tuple(refused))


def _submit(
    client: Client, feed: Followed, group_id: str | None, lost: list[Record]
) -> tuple[Submitted, ApiError | None]:
    """Return the result for the items that were answered, which are the first ones, and the refusal of the others."""
    items = [
        Item(record.address, record.occurred_at, record.reason, record.source)
        for record in lost
        if record.address is not None
    ]
    org_slug, is_all = feed.org_slug, group_id is None
    try:
        return client.unsubscribe(
            feed.channel, items, org_slug=org_slug, group_id=group_id, all_groups=is_all, lenient=True
        ), None
    except _ITEM_REFUSALS as refusal:
        return refusal.submitted or Submitted(), refusal


def _problem_counts(sums: Submitted, refusal: ApiError | None, number: int) -> Iterator[tuple[str, int]]:
    yield from Counter(error.item_error for error in sums.item_errors).items()
    if refusal is not None:
        yield message_of(refusal), number - sums.received
