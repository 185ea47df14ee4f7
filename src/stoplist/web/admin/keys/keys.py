"""Settings → API Keys: every key that this person may see. Source: docs/interface.md section 2.1."""

from stoplist.oauth.credentials import list_credentials
from stoplist.oauth.events import alarms
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.key_use import ALARM_SHOWN_MS, flush_usage
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the keys of one organization or all, oldest first; those with an alarm in the last week are marked."""
    await flush_usage(request)
    since_ms = request.clock.now_ms() - ALARM_SHOWN_MS
    keys, org_slug = await list_credentials(request.actor, request.database), request.query.text("organization")
    return HtmlPage(
        "keys/keys.html",
        {
            "keys": [key for key in keys if not org_slug or org_slug in key.organizations],
            "organizations": await list_organizations(request.actor, request.database),
            "org_slug": org_slug,
            "alarmed": {alarm.client_id for alarm in await alarms(request.actor, request.database, since_ms=since_ms)},
            "may_create": request.may_audit,
        },
    )


ROUTES = (get("/settings/keys", show), get("/settings", show))
