"""Overview: how many people opt out and why, which keys need attention, and whether the stores answer.

It reads daily counts only, so its cost does not depend on the number of records. Source: docs/interface.md section D11.
"""

from collections.abc import Iterable
from itertools import chain, groupby
from typing import Any

import msgspec

from stoplist.clock import DAY_MS
from stoplist.db import schema
from stoplist.oauth.credentials import list_credentials
from stoplist.oauth.key_alerts import DEFAULT_DAYS as ALERT_DAYS
from stoplist.oauth.key_alerts import MAX_ALERTS, list_key_alerts
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations
from stoplist.proof.propagation import KeyPropagation, propagation
from stoplist.records.daily_counts import DayCount, recent_changes, totals
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.charts import PERIODS, bars, period_of
from stoplist.web.admin.key_use import flush_positions, flush_usage
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get

_SLOW_MS = 100.0


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the stores as this process sees them."""

    database_kind: str
    database_ms: float
    is_slow: bool
    has_limit_store: bool
    is_limit_store_lost: bool
    decided_alone: int


async def show(request: PageRequest) -> HtmlPage:
    """Show the overview of one organization, or of all that the person may see."""
    period = period_of(request)
    organizations = await list_organizations(request.actor, request.database)
    org_slug = request.query.text("organization") or None
    values: dict[str, Any] = {"organizations": organizations, "org_slug": org_slug}
    if not organizations:
        return HtmlPage("opt_outs/overview_empty.html", values)
    sums = await totals(request.actor, request.database, org_slug=org_slug)
    if org_slug is None and not any(one.unsubscribed or one.resubscribed for one in sums):
        return HtmlPage("opt_outs/overview_empty.html", values | await _first_steps(request, organizations))
    await flush_usage(request)
    daily = await recent_changes(request.actor, request.database, request.clock, days=period.days, org_slug=org_slug)
    values |= {
        "totals": sums,
        "words": CHANNELS,
        "series": [CHANNELS[name].title for name in CHANNELS],
        "period": period,
        "periods": PERIODS,
        "bars": bars(
            period, _opt_outs_by_day(chain(daily.days_before, daily.days)), today=request.clock.now_ms() // DAY_MS
        ),
        "reasons": daily.reasons,
        "key_alerts": await list_key_alerts(request.actor, request.database, request.clock, org_slug=org_slug),
        "alert_days": ALERT_DAYS,
        "max_keys": MAX_ALERTS,
        "behind": await _behind(request, org_slug),
        "propagation_hours": request.admin.propagation_hours,
        "health": await _health(request) if request.actor.is_administrator else None,
    }
    return HtmlPage("opt_outs/overview.html", values)


async def _behind(request: PageRequest, org_slug: str | None) -> list[KeyPropagation]:
    """Return the keys that have lacked a change for longer than the propagation limit."""
    await flush_positions(request)
    hours = request.admin.propagation_hours
    found = await propagation(request.actor, request.admin.opt_outs, hours=hours, org_slug=org_slug, only_watched=True)
    return [one for one in found if one.is_behind]


async def _first_steps(request: PageRequest, organizations: Iterable[Organization]) -> dict[str, bool]:
    """Return which keys there are to begin with, and whether this person may add keys and opt-outs."""
    open_slugs = {one.slug for one in organizations if not one.is_closed}
    keys = await list_credentials(request.actor, request.database)
    return {
        "has_key": bool(keys),
        "has_usable_key": any(key.is_active and not open_slugs.isdisjoint(key.organizations) for key in keys),
        "may_add": any(request.actor.administers([slug]) for slug in open_slugs),
    }


def _opt_outs_by_day(counts: Iterable[DayCount]) -> dict[int, list[int]]:
    """Return the opt-outs of each channel by day."""
    return {one: [count.unsubscribed for count in of_day] for one, of_day in groupby(counts, lambda count: count.day)}


async def _health(request: PageRequest) -> StoreStatus:
    start_ns = request.clock.monotonic_ns()
    await schema.read(request.database)
    elapsed_ms = (request.clock.monotonic_ns() - start_ns) / 1_000_000
    limits = request.admin.limiter.health()
    return StoreStatus(
        database_kind=request.database.kind,
        database_ms=elapsed_ms,
        is_slow=elapsed_ms > _SLOW_MS,
        has_limit_store=request.admin.limiter.is_shared,
        is_limit_store_lost=limits.is_lost,
        decided_alone=limits.decided_alone,
    )


ROUTES = (get("/", show),)
