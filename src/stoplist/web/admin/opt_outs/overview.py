"""Overview: how many people opt out and why, which keys need attention, and whether the stores answer.

It reads daily counts only, so its cost does not depend on the number of records. Source: docs/interface.md section D11.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from stoplist.db import schema
from stoplist.oauth.credentials import list_credentials
from stoplist.oauth.key_alerts import DEFAULT_DAYS as ALERT_DAYS
from stoplist.oauth.key_alerts import MAX_ALERTS, list_key_alerts
from stoplist.organizations.organizations import list_organizations
from stoplist.records.daily_counts import DEFAULT_DAYS, DayCount, recent_changes, totals
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.key_use import flush_usage
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get
from stoplist.web.admin.rendering import day

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
    organizations = await list_organizations(request.actor, request.database)
    org_slug = request.query.text("organization") or None
    values: dict[str, Any] = {"organizations": organizations, "org_slug": org_slug, "days": DEFAULT_DAYS}
    if not organizations:
        return HtmlPage("opt_outs/overview_empty.html", values | {"has_key": False})
    sums = await totals(request.actor, request.database, org_slug=org_slug)
    if org_slug is None and not any(one.unsubscribed or one.resubscribed for one in sums):
        keys = await list_credentials(request.actor, request.database)
        return HtmlPage("opt_outs/overview_empty.html", values | {"has_key": bool(keys)})
    await flush_usage(request)
    daily = await recent_changes(request.actor, request.database, request.clock, org_slug=org_slug)
    values |= {
        "totals": sums,
        "words": CHANNELS,
        "series": [CHANNELS[name].title for name in CHANNELS],
        "by_day": _stacked(daily.days),
        "reasons": daily.reasons,
        "key_alerts": await list_key_alerts(request.actor, request.database, request.clock, org_slug=org_slug),
        "alert_days": ALERT_DAYS,
        "max_keys": MAX_ALERTS,
        "health": await _health(request) if request.actor.is_administrator else None,
    }
    return HtmlPage("opt_outs/overview.html", values)


def _stacked(counts: Iterable[DayCount]) -> list[tuple[str, list[int]]]:
    """Return the rows of the chart: a day, and the opt-outs of each channel."""
    return [
        (day(one), [count.unsubscribed for count in of_day]) for one, of_day in groupby(counts, lambda count: count.day)
    ]


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
