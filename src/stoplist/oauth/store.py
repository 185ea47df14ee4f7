"""Credentials as they are stored: found, locked for a change, and reduced to what an actor may see.

An actor sees a key if they see one of its organizations, and may change it if they administer them all.
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
    """Return whether the actor may change the key as it was shown; its ceilings are for administrators only."""
    return credential.hidden_organizations == 0 and actor.administers(credential.organizations)


async def find_credential(source: Database | Transaction, actor: Actor, client_id: str) -> Credential:
    """Return the credential of that id as the actor sees it; raise Missing if the actor may see none."""
    return visible_part(actor, await _find(source, client_id))


async def require_visible(source: Database | Transaction, actor: Actor, client_id: str) -> None:
    """Raise Missing unless the actor may see a credential of that id."""
    organizations = await organizations_of(source, client_id) if ids.could_be_id(client_id, ids.CLIENT_ID) else []
    if not any(map(actor.sees, organizations)):
        raise _missing()


async def lock_credential(transaction: Transaction, actor: Actor, client_id: str) -> Credential:
    """Return the credential with all its organizations, locked for a change until the transaction commits.

    Raise Missing if the actor may see none; Forbidden if the actor does not administer every organization that it
    covers now, whatever an earlier form said.
    """
    if ids.could_be_id(client_id, ids.CLIENT_ID):
        await transaction.one(_LOCK, client_id=client_id)
    credential = await _find(transaction, client_id)
    visible_part(actor, credential)
    actor.require_admin_of(*credential.organizations)
    return credential


async def organizations_of(source: Database | Transaction, client_id: str) -> list[str]:
    """Return the slugs of all organizations that the credential covers."""
    return [row["slug"] for row in await source.all(_ORGANIZATIONS_OF, client_id=client_id)]


def visible_part(actor: Actor, credential: Credential) -> Credential:
    """Return the credential without the organizations that the actor may not see; raise Missing if none is left."""
    visible = [slug for slug in credential.organizations if actor.sees(slug)]
    if not visible:
        raise _missing()
    default = credential.default_organization
    return msgspec.structs.replace(
        credential,
        organizations=visible,
        default_organization=default if default in visible else None,
        hidden_organizations=len(credential.organizations) - len(visible),
    )


def read_credential(row: Row, organizations: list[str]) -> Credential:
    """Return the credential in a row of our statements, with these organizations."""
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
        refresh_needs_secret=bool(row["refresh_needs_secret"]),
        last_used_ms=row["last_used_ms"],
        created_ms=row["created_ms"],
    )


async def _find(source: Database | Transaction, client_id: str) -> Credential:
    row = await source.one(_CREDENTIAL, client_id=client_id) if ids.could_be_id(client_id, ids.CLIENT_ID) else None
    if row is None:
        raise _missing()
    return read_credential(row, await organizations_of(source, client_id))


def _missing() -> Missing:
    return Missing(
        "There is no key of that client_id in this environment.", command="`stoplist key list` lists all keys."
    )
