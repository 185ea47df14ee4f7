"""Numbers of opt-outs by day, in total, and by reason, from the daily counts and never from the records.

The cost is the same for ten thousand records and for ten million. Source: docs/interface.md sections D6 and D11.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from stoplist.actor import Actor
from stoplist.clock import DAY_MS, Clock
from stoplist.db import Database
from stoplist.db.query import Query, json_text, load_queries
from stoplist.db.split import foreign_feeds_of
from stoplist.organizations.organizations import list_organizations, show_organization
from stoplist.unsubscribes.channel import CHANNELS, feed_id
from stoplist.unsubscribes.model import RESUBSCRIBED, UNSUBSCRIBED

_QUERIES = load_queries(__package__)
_CHANGES_BY_DAY = _QUERIES["changes_by_day"]
_CURRENT_TOTALS = _QUERIES["standing_now"]

DEFAULT_DAYS = 30
_FEEDS_AT_ONCE = 1_000
_NAMES = {channel.number: channel.name for channel in CHANNELS.values()}


class DayCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of a channel that took each status on one day; days are counted from 1970 UTC."""

    day: int
    channel: str
    unsubscribed: int
    resubscribed: int


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of a channel that show each status now."""

    channel: str
    unsubscribed: int
    resubscribed: int


class ReasonCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of opt-outs for one reason, in a period and in the period before."""

    reason: str
    unsubscribed: int
    before: int = 0


class RecentChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of the last days, and of as many days before them.

    `days` and `days_before` have one row per day and channel, zeros included, oldest first; `reasons` has the most
    frequent reason first.
    """

    days: list[DayCount]
    days_before: list[DayCount]
    reasons: list[ReasonCount]


async def recent_changes(
    actor: Actor, database: Database, clock: Clock, *, days: int = DEFAULT_DAYS, org_slug: str | None = None
) -> RecentChanges:
    """Return the changes of the last `days` days, today included, and of as many days before.

    Covers every organization that the actor sees, or only `org_slug`; Missing if the actor does not see it.
    """
    today = clock.now_ms() // DAY_MS
    first = today - days + 1
    by_day: Counter[tuple[int, str, str]] = Counter()
    reasons: Counter[str] = Counter()
    reasons_before: Counter[str] = Counter()
    for channel, day, status, reason, changes in await _read_counts(
        actor, database, org_slug, _CHANGES_BY_DAY, from_day=first - days
    ):
        by_day[day, _NAMES[channel], status] += changes
        if status == UNSUBSCRIBED:
            (reasons if day >= first else reasons_before)[reason] += changes
    return RecentChanges(
        days=_days_of(by_day, range(first, today + 1)),
        days_before=_days_of(by_day, range(first - days, first)),
        reasons=[
            ReasonCount(reason=reason, unsubscribed=reasons[reason], before=reasons_before[reason])
            for reason in sorted(reasons | reasons_before, key=lambda one: (-reasons[one], -reasons_before[one], one))
        ],
    )


def _days_of(by_day: Counter[tuple[int, str, str]], days: range) -> list[DayCount]:
    return [
        DayCount(
            day=day,
            channel=channel,
            unsubscribed=by_day[day, channel, UNSUBSCRIBED],
            resubscribed=by_day[day, channel, RESUBSCRIBED],
        )
        for day in days
        for channel in CHANNELS
    ]


async def totals(actor: Actor, database: Database, *, org_slug: str | None = None) -> list[Total]:
    """Return the current totals, one row per channel, zeros included. An address counts once for each of its groups."""
    unsubscribed_counts: Counter[str] = Counter()
    resubscribed_counts: Counter[str] = Counter()
    for channel, unsubscribed, resubscribed in await _read_counts(actor, database, org_slug, _CURRENT_TOTALS):
        unsubscribed_counts[_NAMES[channel]] += unsubscribed
        resubscribed_counts[_NAMES[channel]] += resubscribed
    return [
        Total(channel=name, unsubscribed=unsubscribed_counts[name], resubscribed=resubscribed_counts[name])
        for name in CHANNELS
    ]


async def _read_counts(
    actor: Actor, database: Database, org_slug: str | None, query: Query, **values: Any
) -> list[tuple[Any, ...]]:
    """Return the counts of the statement over the feeds of one organization, or of all that the actor sees."""
    feeds = await _visible_feed_ids(actor, database, org_slug)
    counts: list[tuple[Any, ...]] = []
    for at in range(0, len(feeds), _FEEDS_AT_ONCE):
        feed_ids = json_text(feeds[at : at + _FEEDS_AT_ONCE])
        # A year of many feeds is many rows to add up, so this runs as a large query and does not delay others.
        row = await database.one_large(query, feed_ids=feed_ids, **values)
        if row is not None and row["counts"] is not None:
            counts += msgspec.json.decode(row["counts"])
    return counts


async def _visible_feed_ids(actor: Actor, database: Database, org_slug: str | None) -> Sequence[int]:
    if org_slug is not None:
        organizations = [await show_organization(actor, database, org_slug)]
    else:
        organizations = await list_organizations(actor, database)
    feeds = [
        feed_id(organization.organization_id, channel)
        for organization in organizations
        for channel in CHANNELS.values()
    ]
    # Foreign feeds are left out of the counts of all, and refused to somebody who asks for one organization.
    left_out = frozenset[int]() if org_slug is not None else foreign_feeds_of(database)
    return [number for number in feeds if number not in left_out]
