"""Keys that need attention: refused by a limit, failing authentication, or with a reuse alarm.

Source: docs/interface.md sections 3.1 (reuse), 8 and D11.
"""

import msgspec

from stoplist.actor import Actor
from stoplist.clock import DAY_MS, Clock
from stoplist.db import Database
from stoplist.db.query import json_text, load_queries
from stoplist.oauth.events import alarms
from stoplist.organizations.store import require_visible

_KEY_ALERTS = load_queries(__package__)["key_alerts"]

DEFAULT_DAYS = 7
MAX_ALERTS = 10


class KeyAlert(msgspec.Struct, frozen=True, kw_only=True):
    """The incidents of a key in some days, today included. `alarm_ms`: its last reuse alarm in that time."""

    client_id: str
    label: str
    is_active: bool
    limit_refusals: int
    failed_authentications: int
    alarm_ms: int | None


async def list_key_alerts(
    actor: Actor, database: Database, clock: Clock, *, days: int = DEFAULT_DAYS, org_slug: str | None = None
) -> list[KeyAlert]:
    """Return the alerts of the keys that the actor sees, or of one organization: alarms first, then the most refusals.

    At most MAX_ALERTS. Days are in UTC. Raise Missing for an organization that the actor may not see.
    """
    if org_slug is not None:
        require_visible(actor, org_slug)
    since_day = clock.now_ms() // DAY_MS - days + 1
    alarmed = {alarm.client_id: alarm.at_ms for alarm in await alarms(actor, database, since_ms=since_day * DAY_MS)}
    rows = await database.all(
        _KEY_ALERTS,
        since_day=since_day,
        alarmed=json_text(list(alarmed)),
        sees_all=int(actor.is_administrator and org_slug is None),
        slugs=json_text(sorted(actor.roles) if org_slug is None else [org_slug]),
        most=MAX_ALERTS,
    )
    return [
        KeyAlert(
            client_id=row["client_id"],
            label=row["label"],
            is_active=bool(row["is_active"]),
            limit_refusals=row["limit_refusals"],
            failed_authentications=row["failed_authentications"],
            alarm_ms=alarmed.get(row["client_id"]),
        )
        for row in rows
    ]
