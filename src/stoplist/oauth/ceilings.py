"""Rate limits of a key other than the default. Source: docs/interface.md section D8."""

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.oauth.key_rules import StoredCeilings, changed_ceiling, check_ceilings, without_raised
from stoplist.oauth.model import Credential
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
        before = await stored_ceilings(transaction, client_id)
        ceilings = {
            "token_per_minute": changed_ceiling(token_per_minute, before["token_per_minute"]),
            "api_per_minute": changed_ceiling(api_per_minute, before["api_per_minute"]),
        }
        await _store(transaction, actor, client_id, organizations, now_ms=now_ms, ceilings=ceilings, was=before)
        return await find_credential(transaction, actor, client_id)

    return await database.write(change)


async def stored_ceilings(transaction: Transaction, client_id: str) -> StoredCeilings:
    """Return the ceilings of a locked key as they are stored: None is the ordinary one."""
    (row,) = await transaction.all(_CEILINGS, client_id=client_id)
    return {"token_per_minute": row["token_per_minute"], "api_per_minute": row["api_per_minute"]}


async def move_raised_ceilings(
    transaction: Transaction, actor: Actor, old: Credential, stored: StoredCeilings, now_ms: int
) -> None:
    """Take the raised ceilings from a locked key whose replacement has them; lowered ones stay."""
    await _store(
        transaction,
        actor,
        old.client_id,
        old.organizations,
        now_ms=now_ms,
        ceilings=without_raised(stored),
        was=stored,
    )


async def _store(
    transaction: Transaction,
    actor: Actor,
    client_id: str,
    organizations: list[str],
    *,
    now_ms: int,
    ceilings: StoredCeilings,
    was: StoredCeilings,
) -> None:
    if ceilings == was:
        return
    await transaction.run(_SET_CEILINGS, client_id=client_id, **ceilings)
    await trail.record(
        transaction, actor, "key.limits", client_id, at_ms=now_ms, organizations=organizations, **ceilings, was=was
    )
