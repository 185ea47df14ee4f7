"""An API key: settings, usage, last refusals and events. Source: docs/interface.md section D9."""

from stoplist.audit.actions import ACTIONS
from stoplist.clock import DAY_MS
from stoplist.oauth.credentials import show_credential
from stoplist.oauth.events import alarms, events_of
from stoplist.oauth.store import may_change
from stoplist.oauth.usage import last_refusals, use_by_day
from stoplist.web.admin.key_use import ALARM_SHOWN_MS, flush_usage
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get
from stoplist.web.admin.rendering import day

_DAYS = 30


async def show(request: PageRequest) -> HtmlPage:
    """Show the key, with an alert if it raised an alarm in the last week."""
    client_id, now_ms = request.path["client_id"], request.clock.now_ms()
    await flush_usage(request)
    key = await show_credential(request.actor, request.database, client_id=client_id)
    since_day = now_ms // DAY_MS - _DAYS + 1
    usage = {
        one.day: (
            one.requests - one.limit_refusals - one.failed_authentications,
            one.limit_refusals,
            one.failed_authentications,
        )
        for one in await use_by_day(request.actor, request.database, client_id, since_day=since_day)
    }
    recent_alarms = await alarms(request.actor, request.database, since_ms=now_ms - ALARM_SHOWN_MS)
    return HtmlPage(
        "keys/key.html",
        {
            "key": key,
            "may_change": may_change(request.actor, key),
            "days": [(day(one), usage.get(one, (0, 0, 0))) for one in range(since_day, since_day + _DAYS)],
            "refusals": await last_refusals(request.actor, request.database, client_id),
            "events": await events_of(request.actor, request.database, client_id),
            "actions": ACTIONS,
            "alarm_ms": next((at_ms for alarmed_id, at_ms in recent_alarms if alarmed_id == client_id), None),
        },
    )


ROUTES = (get("/settings/keys/{client_id}", show),)
