"""Who did what, to what, when and from where: written in the same transaction as the change itself."""

from collections.abc import Iterable
from typing import Any

import msgspec

from stoplist.actor import Actor
from stoplist.db import Transaction
from stoplist.db.query import load_queries

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
    """Append one row. `action` is `noun.verb`, `target` an id or slug; `detail` never holds a secret or an address.

    `organizations` are the slugs of those that it concerns, whose admins may read it if all of them are theirs; none:
    the deployment. Every action has its words in `stoplist.audit.actions`.
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
        detail=msgspec.json.encode(detail).decode(),
    )
    slugs = sorted(set(organizations))
    if slugs and appended is not None:
        await transaction.run(
            _CONCERN, audit_id=appended["audit_id"], at_ms=at_ms, slugs=msgspec.json.encode(slugs).decode()
        )
