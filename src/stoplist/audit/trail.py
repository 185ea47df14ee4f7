"""Writes the audit, in the same transaction as the recorded change."""

from collections.abc import Iterable
from typing import Any

from stoplist.actor import Actor
from stoplist.db import Transaction
from stoplist.db.query import json_text, load_queries

_QUERIES = load_queries(__package__)
_APPEND = _QUERIES["append"]
_CONCERN = _QUERIES["concern"]


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
    appended = await transaction.one(
        _APPEND,
        at_ms=at_ms,
        actor_kind=actor.kind,
        actor_id=actor.id,
        source_ip=actor.source_ip,
        request_id=actor.request_id,
        action=action,
        target=target,
        detail=json_text(detail),
    )
    slugs = sorted(set(organizations))
    if slugs and appended is not None:
        await transaction.run(_CONCERN, audit_id=appended["audit_id"], at_ms=at_ms, slugs=json_text(slugs))
