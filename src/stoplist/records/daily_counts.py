"""How many opted out: by day, in all, and for which reasons. From the daily counts, never from the records.

It costs the same at ten thousand records and at ten million. Source: docs/interface.md sections D6 and D11.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.query import Query, load_queries
from stoplist.organizations.organizations import list_organizations, show_organization
from stoplist.unsubscribes.channel import CHANNELS, feed_id
from stoplist.unsubscribes.model import RESUBSCRIBED, UNSUBSCRIBED

_QUERIES = load_queries(__package__)
_CHANGES_BY_DAY = _QUERIES["changes_by_day"]
_STANDING_NOW = _QUERIES["standing_now"]

DEFAULT_DAYS = 30
_DAY_MS = 86_400_000
_FEEDS_AT_ONCE = 1_000
_NAMES = {channel.number: channel.name for channel in CHANNELS.values()}


class DayCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many records of a channel took each status on one day, days counted from 1970 UTC."""

    day: int
    channel: str
    unsubscribed: int
    resubscribed: int


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """How many records of a channel show each status now."""

    channel: str
    unsubscribed: int
    resubscribed: int


class ReasonCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many opt-outs there were for a reason."""

    reason: str
    unsubscribed: int


class RecentChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What changed lately.

    `days`, oldest first, have one row a day and channel, be it of noughts; `reasons` the most frequent one first.
    """

    days: list[DayCount]
    reasons: list[ReasonCount]


async def recent_changes(
    actor: Actor, database: Database, clock: Clock, *, days: int = DEFAULT_DAYS, org_slug: str | None = None
) -> RecentChanges:
    """What changed in the last `days` days, today included.

    Over all that the actor sees, or one organization; Missing for one that they do not see.
    """
    today = clock.now_ms() // _DAY_MS
    first = today - days + 1
    by_day: Counter[tuple[int, str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for channel, day, status, reason, changes in await _read(
        actor, database, org_slug, _CHANGES_BY_DAY, from_day=first
    ):
        by_day[day, _NAMES[channel], status] += changes
        if status == UNSUBSCRIBED:
            reasons[reason] += changes
    return RecentChanges(
        days=[
            DayCount(
                day=day,
                channel=channel,
                unsubscribed=by_day[day, channel, UNSUBSCRIBED],
                resubscribed=by_day[day, channel, RESUBSCRIBED],
            )
            for day in range(first, today + 1)
            for channel in CHANNELS
        ],
        reasons=[
            ReasonCount(reason=reason, unsubscribed=changes)
            for reason, changes in sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
        ],
    )


async def totals(actor: Actor, database: Database, *, org_slug: str | None = None) -> list[Total]:
    """What stands now: one row a channel, be it of noughts. An address counts once for each of its groups."""
    barred: Counter[str] = Counter()
    back: Counter[str] = Counter()
    for channel, unsubscribed, resubscribed in await _read(actor, database, org_slug, _STANDING_NOW):
        barred[_NAMES[channel]] += unsubscribed
        back[_NAMES[channel]] += resubscribed
    return [Total(channel=name, unsubscribed=barred[name], resubscribed=back[name]) for name in CHANNELS]


async def _read(
    actor: Actor, database: Database, org_slug: str | None, query: Query, **values: Any
) -> list[tuple[Any, ...]]:
    """What the statement counts over the feeds of one organization, or of all that the actor sees."""
    feeds = await _feeds(actor, database, org_slug)
    counts: list[tuple[Any, ...]] = []
    for at in range(0, len(feeds), _FEEDS_AT_ONCE):
        feed_ids = msgspec.json.encode(feeds[at : at + _FEEDS_AT_ONCE]).decode()
        # A year of many feeds is many rows to add up: others do not wait for it.
        row = await database.one_large(query, feed_ids=feed_ids, **values)
        if row is not None and row["counts"] is not None:
            counts += msgspec.json.decode(row["counts"])
    return counts


async def _feeds(actor: Actor, database: Database, org_slug: str | None) -> Sequence[int]:
    if org_slug is not None:
        organizations = [await show_organization(actor, database, org_slug)]
    else:
        organizations = await list_organizations(actor, database)
    return [feed_id(one.organization_id, channel) for one in organizations for channel in CHANNELS.values()]
