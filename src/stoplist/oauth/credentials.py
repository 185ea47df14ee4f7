"""API credentials: create, show, deactivate, activate, revoke, rotate, change.

Source: docs/interface.md sections 2.1 and D2; who may do what: section D11.

Each change locks the credential's row first, so changes are serialised, and takes effect with the next request: nothing
about a credential is cached between requests.
"""

from collections.abc import Collection, Sequence

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import Query, json_text, load_queries
from stoplist.errors import AlreadyMade
from stoplist.oauth.key_changes import (
    chosen_or_new_id,
    lock_open,
    record_key_change,
    require_new,
    rights_of,
    set_key_organizations,
    stored_secret,
)
from stoplist.oauth.key_rules import (
    changed_ceiling,
    check_ceilings,
    check_permissions,
    other_ceilings,
    resolve_default,
)
from stoplist.oauth.model import (
    NEW_KEY_PERMISSIONS,
    Credential,
    permissions_text,
)
from stoplist.oauth.store import find_credential, lock_credential, read_credential, visible_part
from stoplist.organizations.model import checked_name

_QUERIES = load_queries(__package__)
_ACTIVATE = _QUERIES["activate_client"]
_CREATE = _QUERIES["create_client"]
_CREDENTIALS = _QUERIES["credentials"]
_DEACTIVATE = _QUERIES["deactivate_client"]
_ORGANIZATIONS_OF_ALL = _QUERIES["organizations_of_clients"]
_ORGANIZATIONS_OF_SOME = _QUERIES["organizations_of_some_clients"]
_REPLACE_SECRET = _QUERIES["replace_secret"]
_REVOKE_EVERYTHING = _QUERIES["revoke_everything"]
_REVOKE_TOKENS = _QUERIES["revoke_tokens"]
_SOME_CREDENTIALS = _QUERIES["some_credentials"]
_UPDATE = _QUERIES["update_client"]


class NewCredential(msgspec.Struct, frozen=True):
    """A credential with its secret, which is shown only this once."""

    credential: Credential
    client_secret: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The values that `update_credential` replaces; None leaves a value as it is."""

    label: str | None = None
    organizations: Sequence[str] | None = None
    default_organization: str | None = None
    permissions: frozenset[str] | None = None
    refresh_needs_secret: bool | None = None


async def create_credential(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    label: str,
    organizations: Sequence[str],
    default_organization: str | None = None,
    permissions: frozenset[str] = NEW_KEY_PERMISSIONS,
    client_id: str | None = None,
    token_per_minute: int | str | None = None,
    api_per_minute: int | str | None = None,
    refresh_needs_secret: bool = False,
) -> NewCredential:
    """Create an active credential. A single organization is the default; with several, one must be named.

    A `client_id` chosen beforehand makes a form that is sent twice create one key: AlreadyMade the second time. Only an
    administrator can set other ceilings than the default ones; see `set_ceilings`.
    """
    check_ceilings(actor, token_per_minute, api_per_minute)
    label = checked_name(label, "The label of a key", "label")
    default = resolve_default(organizations, default_organization)
    check_permissions(permissions)
    client_id, secret, now_ms = chosen_or_new_id(client_id), ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def create(transaction: Transaction) -> Credential:
        await lock_open(transaction, actor, organizations)
        created = await transaction.one(
            _CREATE,
            client_id=client_id,
            label=label,
            **stored_secret(secret),
            default_organization=default,
            permissions=permissions_text(permissions),
            token_per_minute=changed_ceiling(token_per_minute, None),
            api_per_minute=changed_ceiling(api_per_minute, None),
            refresh_needs_secret=int(refresh_needs_secret),
            created_ms=now_ms,
        )
        require_new(created)
        await set_key_organizations(transaction, client_id, organizations)
        credential = await find_credential(transaction, actor, client_id)
        await record_key_change(transaction, actor, "key.create", credential, now_ms, **other_ceilings(credential))
        return credential

    return NewCredential(await database.write(create), secret)


async def list_credentials(
    actor: Actor, database: Database, *, client_ids: Collection[str] | None = None
) -> list[Credential]:
    """Return every credential that the actor may see, oldest first; with `client_ids`, only these."""
    organizations: dict[str, list[str]] = {}
    if client_ids is None:
        rows, memberships = await database.all(_CREDENTIALS), await database.all(_ORGANIZATIONS_OF_ALL)
    else:
        clients = json_text(sorted(client_ids))
        rows = await database.all(_SOME_CREDENTIALS, clients=clients)
        memberships = await database.all(_ORGANIZATIONS_OF_SOME, clients=clients)
    for row in memberships:
        organizations.setdefault(row["client_id"], []).append(row["slug"])
    credentials = [read_credential(row, organizations.get(row["client_id"], [])) for row in rows]
    return [
        visible_part(actor, credential) for credential in credentials if any(map(actor.sees, credential.organizations))
    ]


async def show_credential(actor: Actor, database: Database, *, client_id: str) -> Credential:
    """Return the credential of that id; raise Missing if the actor may see none."""
    return await find_credential(database, actor, client_id)


async def deactivate_credential(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """Deactivate the credential and revoke all its tokens, from the next request on."""
    return await _switch(actor, database, clock, client_id, _DEACTIVATE, "key.deactivate", to_active=False)


async def activate_credential(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """Let the credential get tokens again; revoked tokens stay revoked."""
    return await _switch(actor, database, clock, client_id, _ACTIVATE, "key.activate", to_active=True)


async def revoke_tokens(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """Revoke every token of the credential, from the next request on; its secret stays valid."""
    now_ms = clock.now_ms()

    async def revoke(transaction: Transaction) -> Credential:
        credential = await lock_credential(transaction, actor, client_id)
        await transaction.run(_REVOKE_TOKENS, client_id=client_id)
        await trail.record(
            transaction,
            actor,
            "key.revoke_tokens",
            client_id,
            at_ms=now_ms,
            organizations=credential.organizations,
        )
        return credential

    return await database.write(revoke)


async def revoke_everything(transaction: Transaction) -> int:
    """Revoke every token of every credential; return the number of credentials."""
    return await transaction.run(_REVOKE_EVERYTHING)


async def rotate_secret(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, expected_prefix: str | None = None
) -> NewCredential:
    """Give the credential a new secret; the old secret and every token stop working with the next request.

    With `expected_prefix`, raise AlreadyMade unless the present secret begins with it, so that a form that is sent
    twice rotates once.
    """
    secret, now_ms = ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def rotate(transaction: Transaction) -> Credential:
        credential = await lock_credential(transaction, actor, client_id)
        if expected_prefix not in (None, credential.secret_prefix):
            raise AlreadyMade(
                "The secret was changed meanwhile, perhaps by sending this form twice. The new secret was shown once: "
                "rotate it again only if nobody has saved it."
            )
        await transaction.run(_REPLACE_SECRET, client_id=client_id, **stored_secret(secret))
        await trail.record(
            transaction,
            actor,
            "key.rotate_secret",
            client_id,
            at_ms=now_ms,
            organizations=credential.organizations,
            secret_prefix=ids.secret_prefix(secret),
        )
        return await find_credential(transaction, actor, client_id)

    return NewCredential(await database.write(rotate), secret)


async def update_credential(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, changes: Changes
) -> Credential:
    """Apply `changes`; active tokens follow at once. Raise Refused if the default organization is not covered.

    The actor must administer every organization that the credential covers, before and after the change.
    """
    label = None if changes.label is None else checked_name(changes.label, "The label of a key", "label")
    if changes.permissions is not None:
        check_permissions(changes.permissions)
    now_ms = clock.now_ms()

    async def update(transaction: Transaction) -> Credential:
        before = await lock_credential(transaction, actor, client_id)
        permissions = frozenset(before.permissions) if changes.permissions is None else changes.permissions
        default = _new_default(before, changes)
        if changes.organizations is not None and set(changes.organizations) != set(before.organizations):
            await lock_open(transaction, actor, changes.organizations)
            await set_key_organizations(transaction, client_id, changes.organizations)
        elif default != before.default_organization:
            await lock_open(transaction, actor, [default], field="default_organization")
        await transaction.run(
            _UPDATE,
            client_id=client_id,
            label=before.label if label is None else label,
            permissions=permissions_text(permissions),
            default_organization=default,
            refresh_needs_secret=int(
                before.refresh_needs_secret if changes.refresh_needs_secret is None else changes.refresh_needs_secret
            ),
        )
        credential = await find_credential(transaction, actor, client_id)
        if credential != before:
            await record_key_change(
                transaction, actor, "key.update", credential, now_ms, before=before, was=rights_of(before)
            )
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
    now_ms = clock.now_ms()

    async def switch(transaction: Transaction) -> Credential:
        credential = await lock_credential(transaction, actor, client_id)
        if credential.is_active != to_active:
            await transaction.run(statement, client_id=client_id)
            await trail.record(
                transaction, actor, action, client_id, at_ms=now_ms, organizations=credential.organizations
            )
        return await find_credential(transaction, actor, client_id)

    return await database.write(switch)


def _new_default(before: Credential, changes: Changes) -> str:
    """Return the default after an update: the one named, else the old one if still covered, else the only one."""
    organizations = before.organizations if changes.organizations is None else changes.organizations
    default = changes.default_organization
    if default is None and before.default_organization in organizations:
        default = before.default_organization
    return resolve_default(organizations, default)
