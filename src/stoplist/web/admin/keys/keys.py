"""Settings → API Keys: every key that this person sees. Source: docs/interface.md section 2.1."""

from stoplist.oauth.credentials import list_credentials
from stoplist.oauth.events import alarms
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.key_use import ALARM_SHOWN_MS, write_use
from stoplist.web.admin.page_request import Page, Visit, get


async def show(visit: Visit) -> Page:
    """The table, oldest key first, of one organization or all; and which raised an alarm in the last week."""
    await write_use(visit)
    since_ms = visit.clock.now_ms() - ALARM_SHOWN_MS
    keys, wanted = await list_credentials(visit.actor, visit.database), visit.query.text("organization")
    return Page(
        "keys/keys.html",
        {
            "keys": [key for key in keys if not wanted or wanted in key.organizations],
            "organizations": await list_organizations(visit.actor, visit.database),
            "wanted": wanted,
            "alarmed": {alarm.client_id for alarm in await alarms(visit.actor, visit.database, since_ms=since_ms)},
            "may_create": visit.may_audit,
        },
    )


WAYS = (get("/settings/keys", show), get("/settings", show))
