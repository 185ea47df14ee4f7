"""Settings → API Keys: every key that this person sees. Source: docs/interface.md section 2.1."""

from stoplist.oauth.credentials import list_credentials
from stoplist.oauth.events import alarms
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.key_use import ALARM_SHOWN_MS, write_use
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """The table, oldest key first, of one organization or all; and which raised an alarm in the last week."""
    await write_use(request)
    since_ms = request.clock.now_ms() - ALARM_SHOWN_MS
    keys, wanted = await list_credentials(request.actor, request.database), request.query.text("organization")
    return HtmlPage(
        "keys/keys.html",
        {
            "keys": [key for key in keys if not wanted or wanted in key.organizations],
            "organizations": await list_organizations(request.actor, request.database),
            "wanted": wanted,
            "alarmed": {alarm.client_id for alarm in await alarms(request.actor, request.database, since_ms=since_ms)},
            "may_create": request.may_audit,
        },
    )


ROUTES = (get("/settings/keys", show), get("/settings", show))
