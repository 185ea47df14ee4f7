"""Rate limits of a key other than the default. Source: docs/interface.md section D8."""

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.oauth.key_rules import (
    changed_ceiling,
    check_ceilings,
)
from stoplist.oauth.model import (
    Credential,
)
from stoplist.oauth.store import find_credential, lock_credential

_QUERIES = load_queries(__package__)
_CEILINGS = _QUERIES["ceilings"]
_SET_CEILINGS = _QUERIES["set_ceilings"]


async def set_ceilings(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    client_id: str,
    token_per_minute: int | str | None,
    api_per_minute: int | str | None,
) -> Credential:
    """Set these ceilings: a number of requests in 60 s, `default`, or None to leave the ceiling as it is.

    Only for administrators, whatever the organizations of the key.
    """
    actor.require_administrator()
    check_ceilings(actor, token_per_minute, api_per_minute)
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Credential:
        organizations = (await lock_credential(transaction, actor, client_id)).organizations
        (before,) = await transaction.all(_CEILINGS, client_id=client_id)
        ceilings = {
            "token_per_minute": changed_ceiling(token_per_minute, before["token_per_minute"]),
            "api_per_minute": changed_ceiling(api_per_minute, before["api_per_minute"]),
        }
        if ceilings != {name: before[name] for name in ceilings}:
            await transaction.run(_SET_CEILINGS, client_id=client_id, **ceilings)
            was = {name: before[name] for name in ceilings}
            await trail.record(
                transaction,
                actor,
                "key.limits",
                client_id,
                at_ms=now_ms,
                organizations=organizations,
                **ceilings,
                was=was,
            )
        return await find_credential(transaction, actor, client_id)

    return await database.write(change)
