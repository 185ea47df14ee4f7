"""The parts that every change of a key shares: its lock, its new secret, and its row in the audit."""

from collections.abc import Iterable
from typing import Any

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.errors import AlreadyMade, Refused
from stoplist.oauth.model import (
    Credential,
)
from stoplist.organizations.store import lock_open_organization, require_admin_of

_QUERIES = load_queries(__package__)
_ADD_ORGANIZATION = _QUERIES["add_client_organization"]
_REMOVE_ORGANIZATIONS = _QUERIES["remove_client_organizations"]


async def lock_open(
    transaction: Transaction, actor: Actor, organizations: Iterable[str], *, field: str = "organizations"
) -> None:
    """Lock the organizations; raise if one does not exist, is closed, or is not the actor's to administer.

    Locks are taken in sorted order, so that no two transactions deadlock.
    """
    slugs = sorted(set(organizations))
    require_admin_of(actor, *slugs, field=field)
    for slug in slugs:
        await lock_open_organization(transaction, slug, field=field)


async def set_key_organizations(transaction: Transaction, client_id: str, organizations: Iterable[str]) -> None:
    """Let the key cover exactly these organizations."""
    await transaction.run(_REMOVE_ORGANIZATIONS, client_id=client_id)
    for slug in sorted(set(organizations)):
        await transaction.run(_ADD_ORGANIZATION, client_id=client_id, slug=slug)


async def record_key_change(
    transaction: Transaction,
    actor: Actor,
    action: str,
    credential: Credential,
    now_ms: int,
    *,
    before: Credential | None = None,
    **detail: Any,
) -> None:
    """Record the credential's present rights for the organizations that it covers now and covered before."""
    await trail.record(
        transaction,
        actor,
        action,
        credential.client_id,
        at_ms=now_ms,
        organizations=credential.organizations + (before.organizations if before else []),
        **rights_of(credential),
        **detail,
    )


def rights_of(credential: Credential) -> dict[str, Any]:
    """Return the rights of a key as the audit records them."""
    return {
        "label": credential.label,
        "covers": credential.organizations,
        "default_organization": credential.default_organization,
        "permissions": credential.permissions,
        "refresh_needs_secret": credential.refresh_needs_secret,
    }


def chosen_or_new_id(client_id: str | None) -> str:
    """Return the id that the caller chose, or a new one."""
    if client_id is not None and not ids.could_be_id(client_id, ids.CLIENT_ID):
        raise Refused("This form is damaged. Open the page again.")
    return client_id or ids.new_id(ids.CLIENT_ID)


def require_new(created: Any) -> None:
    """Raise AlreadyMade if the INSERT of a key returned no row, because a key has its chosen id already."""
    if created is None:
        raise AlreadyMade("This form was already sent: the key was created, and its secret was shown once.")


def stored_secret(secret: str) -> dict[str, bytes | str]:
    """Return the columns that are stored of a secret: its hash and its prefix."""
    return {"secret_hash": ids.hash_secret(secret), "secret_prefix": ids.secret_prefix(secret)}
