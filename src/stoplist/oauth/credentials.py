"""API credentials: create, show, deactivate, activate, revoke, rotate, change.

Source: docs/interface.md sections 2.1 and D2.

Each change takes the credential's row first, so that changes go one after the other, and is seen by the very next
request: nothing about a credential is remembered between requests.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import Query, load_queries
from stoplist.errors import Refused
from stoplist.oauth.model import (
    API_PER_MINUTE,
    MOST_PER_MINUTE,
    NEW_KEY_PERMISSIONS,
    PERMISSIONS,
    TOKEN_PER_MINUTE,
    Credential,
    permissions_text,
)
from stoplist.organizations.model import checked_name
from stoplist.organizations.store import locked_open

_QUERIES = load_queries(__package__)
_ACTIVATE = _QUERIES["activate_client"]
_ADD_ORGANIZATION = _QUERIES["add_client_organization"]
_CEILINGS = _QUERIES["ceilings"]
_CREATE = _QUERIES["create_client"]
_CREDENTIAL = _QUERIES["credential"]
_CREDENTIALS = _QUERIES["credentials"]
_DEACTIVATE = _QUERIES["deactivate_client"]
_LOCK = _QUERIES["lock_client"]
_ORGANIZATIONS_OF = _QUERIES["organizations_of_client"]
_ORGANIZATIONS_OF_ALL = _QUERIES["organizations_of_clients"]
_REMOVE_ORGANIZATIONS = _QUERIES["remove_client_organizations"]
_REPLACE_SECRET = _QUERIES["replace_secret"]
_REVOKE_EVERYTHING = _QUERIES["revoke_everything"]
_REVOKE_TOKENS = _QUERIES["revoke_tokens"]
_SET_CEILINGS = _QUERIES["set_ceilings"]
_UPDATE = _QUERIES["update_client"]

DEFAULT_CEILING = "default"


class NewCredential(msgspec.Struct, frozen=True):
    """A credential with its secret, which is shown this once."""

    credential: Credential
    client_secret: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What `update_credential` replaces; None leaves it as it is."""

    label: str | None = None
    organizations: Sequence[str] | None = None
    default_organization: str | None = None
    permissions: frozenset[str] | None = None


async def create_credential(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    label: str,
    organizations: Sequence[str],
    default_organization: str | None = None,
    permissions: frozenset[str] = NEW_KEY_PERMISSIONS,
) -> NewCredential:
    """The credential exists and is active. One organization is then the default; of several one must be named."""
    actor.must_be_administrator()
    label = checked_name(label, "The label of a key")
    default = _default_of(organizations, default_organization)
    _check_permissions(permissions)
    client_id, secret, now_ms = ids.new_id(ids.CLIENT_ID), ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def create(transaction: Transaction) -> Credential:
        await _hold_open(transaction, organizations)
        await transaction.run(
            _CREATE,
            client_id=client_id,
            label=label,
            **_stored_secret(secret),
            default_organization=default,
            permissions=permissions_text(permissions),
            created_ms=now_ms,
        )
        await _set_organizations(transaction, client_id, organizations)
        credential = await _credential(transaction, client_id)
        await _record(transaction, actor, "key.create", credential, now_ms)
        return credential

    return NewCredential(await database.write(create), secret)


async def list_credentials(actor: Actor, database: Database) -> list[Credential]:
    """Every credential, oldest first."""
    actor.must_be_administrator()
    organizations: dict[str, list[str]] = {}
    rows = await database.all(_CREDENTIALS)
    for row in await database.all(_ORGANIZATIONS_OF_ALL):
        organizations.setdefault(row["client_id"], []).append(row["slug"])
    return [_from_row(row, organizations.get(row["client_id"], [])) for row in rows]


async def show_credential(actor: Actor, database: Database, *, client_id: str) -> Credential:
    """The credential of that id; Refused if there is none."""
    actor.must_be_administrator()
    return await _credential(database, client_id)


async def deactivate_credential(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """The credential is inactive and every token of it is revoked, from the very next request on."""
    return await _switch(actor, database, clock, client_id, _DEACTIVATE, "key.deactivate", to_active=False)


async def activate_credential(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """The credential can get tokens again; tokens that were revoked stay so."""
    return await _switch(actor, database, clock, client_id, _ACTIVATE, "key.activate", to_active=True)


async def revoke_tokens(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """Every token of the credential is revoked, from the very next request on; its secret stays good."""
    actor.must_be_administrator()
    now_ms = clock.now_ms()

    async def revoke(transaction: Transaction) -> Credential:
        await _lock(transaction, client_id)
        await transaction.run(_REVOKE_TOKENS, client_id=client_id)
        await trail.record(transaction, actor, "key.revoke_tokens", client_id, at_ms=now_ms)
        return await _credential(transaction, client_id)

    return await database.write(revoke)


async def revoke_everything(transaction: Transaction) -> int:
    """Every token of every credential is revoked; returns how many credentials there are."""
    return await transaction.run(_REVOKE_EVERYTHING)


async def rotate_secret(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> NewCredential:
    """The credential has a new secret; the old one and every token are dead from the very next request on."""
    actor.must_be_administrator()
    secret, now_ms = ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def rotate(transaction: Transaction) -> Credential:
        await _lock(transaction, client_id)
        await transaction.run(_REPLACE_SECRET, client_id=client_id, **_stored_secret(secret))
        await trail.record(
            transaction,
            actor,
            "key.rotate_secret",
            client_id,
            at_ms=now_ms,
            secret_prefix=ids.secret_prefix(secret),
        )
        return await _credential(transaction, client_id)

    return NewCredential(await database.write(rotate), secret)


async def set_ceilings(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    client_id: str,
    token_per_minute: int | str | None,
    api_per_minute: int | str | None,
) -> Credential:
    """The credential has these ceilings: a number of requests in 60 s, `default`, or None to leave it as it is."""
    actor.must_be_administrator()
    _check_ceilings(token_per_minute, api_per_minute)
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Credential:
        await _lock(transaction, client_id)
        known = _found(await transaction.one(_CEILINGS, client_id=client_id))
        wanted = {
            "token_per_minute": _ceiling(token_per_minute, known["token_per_minute"]),
            "api_per_minute": _ceiling(api_per_minute, known["api_per_minute"]),
        }
        if wanted != {name: known[name] for name in wanted}:
            await transaction.run(_SET_CEILINGS, client_id=client_id, **wanted)
            was = {name: known[name] for name in wanted}
            await trail.record(transaction, actor, "key.limits", client_id, at_ms=now_ms, **wanted, was=was)
        return await _credential(transaction, client_id)

    return await database.write(change)


async def update_credential(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, changes: Changes
) -> Credential:
    """What `changes` gives replaces what was; living tokens follow at once. Refused if the default is not covered."""
    actor.must_be_administrator()
    label = None if changes.label is None else checked_name(changes.label, "The label of a key")
    if changes.permissions is not None:
        _check_permissions(changes.permissions)
    now_ms = clock.now_ms()

    async def update(transaction: Transaction) -> Credential:
        await _lock(transaction, client_id)
        known = await _credential(transaction, client_id)
        permissions = frozenset(known.permissions) if changes.permissions is None else changes.permissions
        default = _new_default(known, changes)
        if changes.organizations is not None:
            await _hold_open(transaction, changes.organizations)
            await _set_organizations(transaction, client_id, changes.organizations)
        elif default != known.default_organization:
            await _hold_open(transaction, [default])
        await transaction.run(
            _UPDATE,
            client_id=client_id,
            label=known.label if label is None else label,
            permissions=permissions_text(permissions),
            default_organization=default,
        )
        credential = await _credential(transaction, client_id)
        if credential != known:
            await _record(transaction, actor, "key.update", credential, now_ms, was=_rights(known))
        return credential

    return await database.write(update)


async def _switch(
    actor: Actor,
    database: Database,
    clock: Clock,
    client_id: str,
    statement: Query,
    action: str,
    *,
    to_active: bool,
) -> Credential:
    actor.must_be_administrator()
    now_ms = clock.now_ms()

    async def switch(transaction: Transaction) -> Credential:
        if await _lock(transaction, client_id) != to_active:
            await transaction.run(statement, client_id=client_id)
            await trail.record(transaction, actor, action, client_id, at_ms=now_ms)
        return await _credential(transaction, client_id)

    return await database.write(switch)


async def _lock(transaction: Transaction, client_id: str) -> bool:
    """Hold the credential until the transaction commits; returns whether it is active. Refused if there is none."""
    row = await transaction.one(_LOCK, client_id=client_id)
    return bool(_found(row)["is_active"])


async def _hold_open(transaction: Transaction, organizations: Iterable[str]) -> None:
    """Refuse organizations that do not exist or are closed, and hold them; in one order, so that none deadlock."""
    for slug in sorted(set(organizations)):
        await locked_open(transaction, slug)


async def _set_organizations(transaction: Transaction, client_id: str, organizations: Iterable[str]) -> None:
    await transaction.run(_REMOVE_ORGANIZATIONS, client_id=client_id)
    for slug in sorted(set(organizations)):
        await transaction.run(_ADD_ORGANIZATION, client_id=client_id, slug=slug)


async def _credential(source: Database | Transaction, client_id: str) -> Credential:
    row = _found(await source.one(_CREDENTIAL, client_id=client_id))
    organizations = await source.all(_ORGANIZATIONS_OF, client_id=client_id)
    return _from_row(row, [organization["slug"] for organization in organizations])


async def _record(
    transaction: Transaction, actor: Actor, action: str, credential: Credential, now_ms: int, **detail: Any
) -> None:
    await trail.record(transaction, actor, action, credential.client_id, at_ms=now_ms, **_rights(credential), **detail)


def _rights(credential: Credential) -> dict[str, Any]:
    return {
        "label": credential.label,
        "organizations": credential.organizations,
        "default_organization": credential.default_organization,
        "permissions": credential.permissions,
    }


def _default_of(organizations: Sequence[str], default: str | None) -> str:
    if not organizations:
        raise Refused("A key needs at least one organization.")
    if default is None and len(set(organizations)) > 1:
        raise Refused("A key for several organizations needs one of them as its default organization.")
    if default is not None and default not in organizations:
        raise Refused("The default organization must be one of the organizations of the key.")
    return default or organizations[0]


def _new_default(known: Credential, changes: Changes) -> str:
    """The default after an update: the one named, else the old one if it is still covered, else the only one."""
    organizations = known.organizations if changes.organizations is None else changes.organizations
    default = changes.default_organization
    if default is None and known.default_organization in organizations:
        default = known.default_organization
    return _default_of(organizations, default)


def _check_permissions(permissions: frozenset[str]) -> None:
    if not permissions or not permissions <= set(PERMISSIONS):
        raise Refused(f"The permissions of a key are one or more of: {', '.join(PERMISSIONS)}.")


def _check_ceilings(*ceilings: int | str | None) -> None:
    for ceiling in ceilings:
        if isinstance(ceiling, int) and not 1 <= ceiling <= MOST_PER_MINUTE:
            raise Refused(f"A ceiling is a whole number of requests from 1 to {MOST_PER_MINUTE}, or `default`.")


def _ceiling(wanted: int | str | None, known: int | None) -> int | None:
    if wanted is None:
        return known
    return None if wanted == DEFAULT_CEILING else int(wanted)


def _stored_secret(secret: str) -> dict[str, bytes | str]:
    return {"secret_hash": ids.hash_secret(secret), "secret_prefix": ids.secret_prefix(secret)}


def _found(row: Row | None) -> Row:
    if row is None:
        raise Refused("There is no key of that client_id in this environment: `stoplist key list` shows them.")
    return row


def _from_row(row: Row, organizations: list[str]) -> Credential:
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
