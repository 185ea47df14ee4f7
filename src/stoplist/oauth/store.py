"""Credentials as they are stored: found, and held while a change is decided; and how much of them somebody sees.

A key is seen by whoever sees one of its organizations, and changed by whoever administers them all.
Source: docs/interface.md section D11.
"""

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing
from stoplist.oauth.model import API_PER_MINUTE, TOKEN_PER_MINUTE, Credential

_QUERIES = load_queries(__package__)
_CREDENTIAL = _QUERIES["credential"]
_LOCK = _QUERIES["lock_client"]
_ORGANIZATIONS_OF = _QUERIES["organizations_of_client"]


def may_change(actor: Actor, credential: Credential) -> bool:
    """Whether the actor may change the key that it was shown; its ceilings are an administrator's all the same."""
    return credential.hidden_organizations == 0 and actor.administers(credential.organizations)


async def find_credential(source: Database | Transaction, actor: Actor, client_id: str) -> Credential:
    """The credential of that id as the actor sees it; Missing if there is none that it may see."""
    return visible_part(actor, await _whole(source, client_id))


async def require_visible(source: Database | Transaction, actor: Actor, client_id: str) -> None:
    """Missing unless there is a credential of that id which the actor may see."""
    organizations = await organizations_of(source, client_id) if ids.could_be_id(client_id, ids.CLIENT_ID) else []
    if not any(map(actor.sees, organizations)):
        raise _missing()


async def lock_credential(transaction: Transaction, actor: Actor, client_id: str) -> Credential:
    """The credential, held until the transaction commits, with all its organizations: the actor may change it.

    Missing if there is none that it may see; Forbidden if one of the organizations that it covers now is not the
    actor's to administer, whatever a form said that was filled in before.
    """
    if ids.could_be_id(client_id, ids.CLIENT_ID):
        await transaction.one(_LOCK, client_id=client_id)
    credential = await _whole(transaction, client_id)
    visible_part(actor, credential)
    actor.require_admin_of(*credential.organizations)
    return credential


async def organizations_of(source: Database | Transaction, client_id: str) -> list[str]:
    """The slugs of all organizations that the credential covers."""
    return [row["slug"] for row in await source.all(_ORGANIZATIONS_OF, client_id=client_id)]


def visible_part(actor: Actor, credential: Credential) -> Credential:
    """The credential without the organizations that the actor may not see; Missing if it may see none of them."""
    seen = [slug for slug in credential.organizations if actor.sees(slug)]
    if not seen:
        raise _missing()
    default = credential.default_organization
    return msgspec.structs.replace(
        credential,
        organizations=seen,
        default_organization=default if default in seen else None,
        hidden_organizations=len(credential.organizations) - len(seen),
    )


def read_credential(row: Row, organizations: list[str]) -> Credential:
    """The credential that a row of our statements describes, with these organizations."""
    return Credential(
        client_id=row["client_id"],
        label=row["label"],
        secret_prefix=row["secret_prefix"],
        is_active=bool(row["is_active"]),
        organizations=organizations,
        default_organization=row["default_organization"],
        permissions=row["permissions"].split(),
        token_per_minute=row["token_per_minute"] or TOKEN_PER_MINUTE,
        api_per_minute=row["api_per_minute"] or API_PER_MINUTE,
        last_used_ms=row["last_used_ms"],
        created_ms=row["created_ms"],
    )


async def _whole(source: Database | Transaction, client_id: str) -> Credential:
    row = await source.one(_CREDENTIAL, client_id=client_id) if ids.could_be_id(client_id, ids.CLIENT_ID) else None
    if row is None:
        raise _missing()
    return read_credential(row, await organizations_of(source, client_id))


def _missing() -> Missing:
    return Missing(
        "There is no key of that client_id in this environment.", command="`stoplist key list` shows those that exist."
    )
