"""The events of keys, for those who see them: the events of one key, and the reuse alarms of all.

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
    """The last time a refresh token of this key was presented a second time; milliseconds since 1970 UTC."""

    client_id: str
    at_ms: int


async def alarms(actor: Actor, database: Database, *, since_ms: int) -> list[Alarm]:
    """Return the last reuse alarm since `since_ms` of each key that the actor may see, latest first."""
    rows = await database.all(_ALARMS, since_ms=since_ms, most=MAX_ALARMS)
    if not rows:
        return []
    seen = {row["client_id"] for row in await database.all(_ORGANIZATIONS_OF_ALL) if actor.sees(row["slug"])}
    return [Alarm(row["client_id"], row["at_ms"]) for row in rows if row["client_id"] in seen]


async def events_of(actor: Actor, database: Database, client_id: str, limit: int = 50) -> list[AuditEntry]:
    """Return the events of the key, newest first; raise Missing if the actor may see no key of that id.

    If the actor may not read an event in the audit, only its actor, action and time are included.
    """
    await require_visible(database, actor, client_id)
    events = await reading.latest_of(database, client_id, limit=limit)
    return [event if reading.may_read(actor, event) else _outline(actor, event) for event in events]


def _outline(actor: Actor, event: AuditEntry) -> AuditEntry:
    seen = [slug for slug in event.organizations if actor.sees(slug)]
    return msgspec.structs.replace(event, detail={}, source_ip=None, request_id=None, organizations=seen)
