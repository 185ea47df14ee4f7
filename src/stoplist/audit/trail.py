"""Writes the audit, in the same transaction as the recorded change.

Beside a feed in a database of its own the entry is kept in the feed's outbox, and moved to the audit afterwards.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from stoplist.actor import Actor
from stoplist.db import Transaction, feed_outbox
from stoplist.db.query import json_text, load_queries

_QUERIES = load_queries(__package__)
_APPEND = _QUERIES["append"]
_CONCERN = _QUERIES["concern"]


class Entry(msgspec.Struct, frozen=True):
    """An entry of the audit. `detail` is JSON; `organizations` are slugs."""

    at_ms: int
    actor_kind: str
    actor_id: str
    source_ip: str | None
    request_id: str | None
    action: str
    target: str
    detail: str
    organizations: list[str]


async def record(
    transaction: Transaction,
    actor: Actor,
    action: str,
    target: str,
    *,
    at_ms: int,
    organizations: Iterable[str] = (),
    **detail: Any,
) -> None:
    """Append one entry. `action` is `noun.verb`, `target` an id or slug; `detail` never holds a secret or an address.

    `organizations` are the slugs of the organizations that the action concerns; none means the deployment. The entry is
    readable by admins of all of them. `stoplist.audit.actions` has a text for every action.
    """
    entry = Entry(
        at_ms,
        actor.kind,
        actor.id,
        actor.source_ip,
        actor.request_id,
        action,
        target,
        json_text(detail),
        sorted(set(organizations)),
    )
    if transaction.outbox_feed_id is None:
        await append(transaction, entry)
    else:
        await feed_outbox.add_entry(transaction, feed_outbox.AUDIT, entry, at_ms=at_ms)


async def append(transaction: Transaction, entry: Entry) -> None:
    """Write an entry into the audit."""
    values = msgspec.structs.asdict(entry)
    slugs = values.pop("organizations")
    appended = await transaction.one(_APPEND, **values)
    if slugs and appended is not None:
        await transaction.run(_CONCERN, audit_id=appended["audit_id"], at_ms=entry.at_ms, slugs=json_text(slugs))
