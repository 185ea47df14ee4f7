"""Who did what, to what, when and from where: written in the same transaction as the change itself."""

from typing import Any

import msgspec

from stoplist.actor import Actor
from stoplist.db import Transaction
from stoplist.db.query import load_queries

_APPEND = load_queries(__package__)["append"]


async def record(
    transaction: Transaction, actor: Actor, action: str, target: str, *, at_ms: int, **detail: Any
) -> None:
    """Append one row. `action` is `noun.verb`, `target` an id or slug; `detail` never holds a secret or an address."""
    await transaction.run(
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
