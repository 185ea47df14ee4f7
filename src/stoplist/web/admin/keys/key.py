"""An API key: settings, usage, last refusals and events. Source: docs/interface.md section D9."""

from stoplist.audit.actions import ACTIONS
from stoplist.clock import DAY_MS
from stoplist.oauth.credentials import show_credential
from stoplist.oauth.events import alarms, events_of
from stoplist.oauth.store import may_change
from stoplist.oauth.usage import RefusalGroup, group_refusals, last_refusals, use_by_day
from stoplist.web.admin.charts import PERIODS, bars, period_of
from stoplist.web.admin.key_use import ALARM_SHOWN_MS, flush_usage
from stoplist.web.admin.keys.refusal_advice import advice_on
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the key, with an alert if it raised an alarm in the last week."""
    client_id, now_ms = request.path["client_id"], request.clock.now_ms()
    await flush_usage(request)
    key = await show_credential(request.actor, request.database, client_id=client_id)
    period, today = period_of(request), now_ms // DAY_MS
    since_day = today - 2 * period.days + 1
    usage = dict.fromkeys(range(since_day, today + 1), (0, 0, 0)) | {
        one.day: (
            one.requests - one.limit_refusals - one.failed_authentications,
            one.limit_refusals,
            one.failed_authentications,
        )
        for one in await use_by_day(request.actor, request.database, client_id, since_day=since_day)
    }
    refusals, changes = await last_refusals(request.actor, request.database, client_id), may_change(request.actor, key)
    recent_alarms = await alarms(request.actor, request.database, since_ms=now_ms - ALARM_SHOWN_MS)
    return HtmlPage(
        "keys/key.html",
        {
            "key": key,
            "may_change": changes,
            "period": period,
            "periods": PERIODS,
            "bars": bars(period, usage, today=today),
            "refusals": refusals,
            "refusal_groups": _with_advice(request, group_refusals(refusals), may_change=changes),
            "events": await events_of(request.actor, request.database, client_id),
            "actions": ACTIONS,
            "alarm_ms": next((at_ms for alarmed_id, at_ms in recent_alarms if alarmed_id == client_id), None),
        },
    )


def _with_advice(
    request: PageRequest, groups: list[RefusalGroup], *, may_change: bool
) -> list[tuple[RefusalGroup, str | None]]:
    """Return each group with what to do about it; None if an earlier group of the same code says so."""
    said: set[str] = set()
    rows: list[tuple[RefusalGroup, str | None]] = []
    for group in groups:
        is_new = group.code not in said
        said.add(group.code)
        is_administrator = request.actor.is_administrator
        advice = advice_on(group.code, may_change=may_change, is_administrator=is_administrator) if is_new else None
        rows.append((group, advice))
    return rows


ROUTES = (get("/settings/keys/{client_id}", show),)
