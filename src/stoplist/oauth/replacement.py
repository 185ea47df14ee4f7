"""The replacement of a key by another with the same rights, without multiplying raised ceilings.

Source: docs/interface.md sections 2.1 (rotation), D8 and D11.
"""

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.oauth.ceilings import move_raised_ceilings, stored_ceilings
from stoplist.oauth.credentials import NewCredential
from stoplist.oauth.key_changes import chosen_or_new_id, record_key_change, require_new, stored_secret
from stoplist.oauth.key_rules import other_ceilings, replacement_ceilings, replacement_label
from stoplist.oauth.model import Credential
from stoplist.oauth.store import find_credential, lock_credential

_QUERIES = load_queries(__package__)
_DEACTIVATE = _QUERIES["deactivate_client"]
_REPLACE = _QUERIES["replace_client"]
_REPLACE_ORGANIZATIONS = _QUERIES["replace_client_organizations"]


async def replace_credential(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    client_id: str,
    new_client_id: str | None = None,
    deactivates_old: bool = False,
) -> NewCredential:
    """Create an active credential with the same organizations and permissions beside the old one.

    Its label is the old one followed by `(replacement)`. With `deactivates_old` the old one is deactivated in the same
    transaction, and its raised ceilings move to the new one. Otherwise the old one does not change, and only an
    administrator's replacement has the same raised ceilings. `new_client_id` is chosen beforehand, as for
    `create_credential`. Source: docs/interface.md sections 2.1 and D8.
    """
    new_id, secret, now_ms = chosen_or_new_id(new_client_id), ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def replace(transaction: Transaction) -> Credential:
        old = await lock_credential(transaction, actor, client_id)
        stored = await stored_ceilings(transaction, client_id)
        created = await transaction.one(
            _REPLACE,
            client_id=client_id,
            new_client_id=new_id,
            label=replacement_label(old.label),
            **stored_secret(secret),
            **replacement_ceilings(actor, stored, deactivates_old=deactivates_old),
            created_ms=now_ms,
        )
        require_new(created)
        await transaction.run(_REPLACE_ORGANIZATIONS, client_id=client_id, new_client_id=new_id)
        new = await find_credential(transaction, actor, new_id)
        await trail.record(
            transaction,
            actor,
            "key.replace",
            client_id,
            at_ms=now_ms,
            organizations=old.organizations,
            replaced_by=new_id,
        )
        await record_key_change(
            transaction, actor, "key.create", new, now_ms, **other_ceilings(new), replaces=client_id
        )
        if deactivates_old:
            await move_raised_ceilings(transaction, actor, old, stored, now_ms)
            await _deactivate(transaction, actor, old, now_ms)
        return new

    return NewCredential(await database.write(replace), secret)


async def _deactivate(transaction: Transaction, actor: Actor, old: Credential, now_ms: int) -> None:
    if old.is_active:
        await transaction.run(_DEACTIVATE, client_id=old.client_id)
        await trail.record(
            transaction, actor, "key.deactivate", old.client_id, at_ms=now_ms, organizations=old.organizations
        )
