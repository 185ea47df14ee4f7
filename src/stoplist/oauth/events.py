"""What happened to keys, for those who see them: the events of one, and the reuse alarms of all.

Source: docs/interface.md sections 3.1 (reuse) and D11.
"""

from typing import NamedTuple

import msgspec

from stoplist.actor import Actor
from stoplist.audit import reading
from stoplist.audit.reading import AuditEntry
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.oauth.store import require_visible

_QUERIES = load_queries(__package__)
_ALARMS = _QUERIES["alarms"]
_ORGANIZATIONS_OF_ALL = _QUERIES["organizations_of_clients"]

MAX_ALARMS = 10_000


class Alarm(NamedTuple):
    """When a refresh token of this key was last presented a second time; milliseconds since 1970 UTC."""

    client_id: str
    at_ms: int


async def alarms(actor: Actor, database: Database, *, since_ms: int) -> list[Alarm]:
    """The last reuse alarm since then of each key that the actor may see, latest first."""
    found = await database.all(_ALARMS, since_ms=since_ms, most=MAX_ALARMS)
    if not found:
        return []
    seen = {row["client_id"] for row in await database.all(_ORGANIZATIONS_OF_ALL) if actor.sees(row["slug"])}
    return [Alarm(row["client_id"], row["at_ms"]) for row in found if row["client_id"] in seen]


async def events_of(actor: Actor, database: Database, client_id: str, limit: int = 50) -> list[AuditEntry]:
    """What was done to the key, newest first; Missing if there is no key of that id that the actor may see.

    Of an event that the audit does not show to the actor only who did what and when is told.
    """
    await require_visible(database, actor, client_id)
    events = await reading.latest_of(database, client_id, limit=limit)
    return [event if reading.may_read(actor, event) else _in_outline(actor, event) for event in events]


def _in_outline(actor: Actor, event: AuditEntry) -> AuditEntry:
    seen = [slug for slug in event.organizations if actor.sees(slug)]
    return msgspec.structs.replace(event, detail={}, source_ip=None, request_id=None, organizations=seen)
