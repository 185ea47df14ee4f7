"""API credentials: create, show, deactivate, activate, revoke, rotate, replace, change.

Source: docs/interface.md sections 2.1 and D2; who may do what: section D11.

Each change locks the credential's row first, so changes are serialised, and takes effect with the next request: nothing
about a credential is cached between requests.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import Query, load_queries
from stoplist.errors import AlreadyMade, Forbidden, Refused
from stoplist.oauth.model import (
    API_PER_MINUTE,
    MAX_PER_MINUTE,
    NEW_KEY_PERMISSIONS,
    PERMISSIONS,
    TOKEN_PER_MINUTE,
    Credential,
    permissions_text,
)
from stoplist.oauth.store import find_credential, lock_credential, read_credential, visible_part
from stoplist.organizations.model import MAX_NAME_CHARS, checked_name
from stoplist.organizations.store import lock_open_organization, require_admin_of

_QUERIES = load_queries(__package__)
_ACTIVATE = _QUERIES["activate_client"]
_ADD_ORGANIZATION = _QUERIES["add_client_organization"]
_CEILINGS = _QUERIES["ceilings"]
_CREATE = _QUERIES["create_client"]
_CREDENTIALS = _QUERIES["credentials"]
_DEACTIVATE = _QUERIES["deactivate_client"]
_ORGANIZATIONS_OF_ALL = _QUERIES["organizations_of_clients"]
_REMOVE_ORGANIZATIONS = _QUERIES["remove_client_organizations"]
_REPLACE = _QUERIES["replace_client"]
_REPLACE_ORGANIZATIONS = _QUERIES["replace_client_organizations"]
_REPLACE_SECRET = _QUERIES["replace_secret"]
_REVOKE_EVERYTHING = _QUERIES["revoke_everything"]
_REVOKE_TOKENS = _QUERIES["revoke_tokens"]
_SET_CEILINGS = _QUERIES["set_ceilings"]
_UPDATE = _QUERIES["update_client"]

DEFAULT_CEILING = "default"
_REPLACEMENT = re.compile(r"^(?P<name>.*?) \(replacement(?: (?P<number>[1-9][0-9]{0,5}))?\)$")


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
) -> NewCredential:
    """Create an active credential. A single organization is the default; with several, one must be named.

    A `client_id` chosen beforehand makes a form that is sent twice create one key: AlreadyMade the second time. Only an
    administrator can set other ceilings than the default ones; see `set_ceilings`.
    """
    _check_ceilings(actor, token_per_minute, api_per_minute)
    label = checked_name(label, "The label of a key", "label")
    default = _resolve_default(organizations, default_organization)
    _check_permissions(permissions)
    client_id, secret, now_ms = _new_id(client_id), ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def create(transaction: Transaction) -> Credential:
        await _lock_open(transaction, actor, organizations)
        created = await transaction.one(
            _CREATE,
            client_id=client_id,
            label=label,
            **_stored_secret(secret),
            default_organization=default,
            permissions=permissions_text(permissions),
            token_per_minute=_ceiling(token_per_minute, None),
            api_per_minute=_ceiling(api_per_minute, None),
            created_ms=now_ms,
        )
        _require_new(created)
        await _set_organizations(transaction, client_id, organizations)
        credential = await find_credential(transaction, actor, client_id)
        await _record(transaction, actor, "key.create", credential, now_ms, **_other_ceilings(credential))
        return credential

    return NewCredential(await database.write(create), secret)


async def replace_credential(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, new_client_id: str | None = None
) -> NewCredential:
    """Create an active credential with the same rights beside the old one, which does not change.

    It has the same organizations, permissions and ceilings, and the label followed by `(replacement)`. `new_client_id`
    is chosen beforehand, as for `create_credential`. Source: docs/interface.md section 2.1.
    """
    new_id, secret, now_ms = _new_id(new_client_id), ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def replace(transaction: Transaction) -> Credential:
        old = await lock_credential(transaction, actor, client_id)
        created = await transaction.one(
            _REPLACE,
            client_id=client_id,
            new_client_id=new_id,
            label=_replacement_label(old.label),
            **_stored_secret(secret),
            created_ms=now_ms,
        )
        _require_new(created)
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
        await _record(transaction, actor, "key.create", new, now_ms, **_other_ceilings(new), replaces=client_id)
        return new

    return NewCredential(await database.write(replace), secret)


async def list_credentials(actor: Actor, database: Database) -> list[Credential]:
    """Return every credential that the actor may see, oldest first."""
    organizations: dict[str, list[str]] = {}
    rows = await database.all(_CREDENTIALS)
    for row in await database.all(_ORGANIZATIONS_OF_ALL):
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
        await transaction.run(_REPLACE_SECRET, client_id=client_id, **_stored_secret(secret))
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
    _check_ceilings(actor, token_per_minute, api_per_minute)
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Credential:
        organizations = (await lock_credential(transaction, actor, client_id)).organizations
        (before,) = await transaction.all(_CEILINGS, client_id=client_id)
        ceilings = {
            "token_per_minute": _ceiling(token_per_minute, before["token_per_minute"]),
            "api_per_minute": _ceiling(api_per_minute, before["api_per_minute"]),
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


async def update_credential(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, changes: Changes
) -> Credential:
    """Apply `changes`; active tokens follow at once. Raise Refused if the default organization is not covered.

    The actor must administer every organization that the credential covers, before and after the change.
    """
    label = None if changes.label is None else checked_name(changes.label, "The label of a key", "label")
    if changes.permissions is not None:
        _check_permissions(changes.permissions)
    now_ms = clock.now_ms()

    async def update(transaction: Transaction) -> Credential:
        before = await lock_credential(transaction, actor, client_id)
        permissions = frozenset(before.permissions) if changes.permissions is None else changes.permissions
        default = _new_default(before, changes)
        if changes.organizations is not None and set(changes.organizations) != set(before.organizations):
            await _lock_open(transaction, actor, changes.organizations)
            await _set_organizations(transaction, client_id, changes.organizations)
        elif default != before.default_organization:
            await _lock_open(transaction, actor, [default], field="default_organization")
        await transaction.run(
            _UPDATE,
            client_id=client_id,
            label=before.label if label is None else label,
            permissions=permissions_text(permissions),
            default_organization=default,
        )
        credential = await find_credential(transaction, actor, client_id)
        if credential != before:
            await _record(transaction, actor, "key.update", credential, now_ms, before=before, was=_rights(before))
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


async def _lock_open(
    transaction: Transaction, actor: Actor, organizations: Iterable[str], *, field: str = "organizations"
) -> None:
    """Lock the organizations; raise if one does not exist, is closed, or is not the actor's to administer.

    Locks are taken in sorted order, so that no two transactions deadlock.
    """
    slugs = sorted(set(organizations))
    require_admin_of(actor, *slugs, field=field)
    for slug in slugs:
        await lock_open_organization(transaction, slug, field=field)


async def _set_organizations(transaction: Transaction, client_id: str, organizations: Iterable[str]) -> None:
    await transaction.run(_REMOVE_ORGANIZATIONS, client_id=client_id)
    for slug in sorted(set(organizations)):
        await transaction.run(_ADD_ORGANIZATION, client_id=client_id, slug=slug)


async def _record(
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
        **_rights(credential),
        **detail,
    )


def _rights(credential: Credential) -> dict[str, Any]:
    return {
        "label": credential.label,
        "covers": credential.organizations,
        "default_organization": credential.default_organization,
        "permissions": credential.permissions,
    }


def _other_ceilings(credential: Credential) -> dict[str, Any]:
    ceilings = {"token_per_minute": credential.token_per_minute, "api_per_minute": credential.api_per_minute}
    ordinary = {"token_per_minute": TOKEN_PER_MINUTE, "api_per_minute": API_PER_MINUTE}
    return {} if ceilings == ordinary else ceilings


def _replacement_label(label: str) -> str:
    """Return `Shop (replacement)` for `Shop`, then `Shop (replacement 2)`; a name that is too long is shortened."""
    match = _REPLACEMENT.match(label)
    name, number = (match["name"], int(match["number"] or 1) + 1) if match else (label, 1)
    ending = " (replacement)" if number == 1 else f" (replacement {number})"
    return name[: MAX_NAME_CHARS - len(ending)].rstrip() + ending


def _new_id(client_id: str | None) -> str:
    """Return the id that the caller chose, or a new one."""
    if client_id is not None and not ids.could_be_id(client_id, ids.CLIENT_ID):
        raise Refused("This form is damaged. Open the page again.")
    return client_id or ids.new_id(ids.CLIENT_ID)


def _require_new(created: Any) -> None:
    if created is None:
        raise AlreadyMade("This form was already sent: the key was created, and its secret was shown once.")


def _resolve_default(organizations: Sequence[str], default: str | None) -> str:
    if not organizations:
        raise Refused("A key needs at least one organization.", field="organizations")
    if default is None and len(set(organizations)) > 1:
        raise Refused(
            "A key for several organizations needs one of them as its default organization.",
            field="default_organization",
        )
    if default is not None and default not in organizations:
        raise Refused(
            "The default organization must be one of the organizations of the key.", field="default_organization"
        )
    return default or organizations[0]


def _new_default(before: Credential, changes: Changes) -> str:
    """Return the default after an update: the one named, else the old one if still covered, else the only one."""
    organizations = before.organizations if changes.organizations is None else changes.organizations
    default = changes.default_organization
    if default is None and before.default_organization in organizations:
        default = before.default_organization
    return _resolve_default(organizations, default)


def _check_permissions(permissions: frozenset[str]) -> None:
    if not permissions or not permissions <= set(PERMISSIONS):
        raise Refused(f"The permissions of a key are one or more of: {', '.join(PERMISSIONS)}.", field="permissions")


def _check_ceilings(actor: Actor, token_per_minute: int | str | None, api_per_minute: int | str | None) -> None:
    for field, ceiling in (("token_per_minute", token_per_minute), ("api_per_minute", api_per_minute)):
        if ceiling is not None and not actor.is_administrator:
            raise Forbidden("Only an administrator can set other ceilings: ask one.", field=field)
        if ceiling in (None, DEFAULT_CEILING):
            continue
        if not isinstance(ceiling, int) or not 1 <= ceiling <= MAX_PER_MINUTE:
            raise Refused(
                f"A ceiling is a whole number of requests from 1 to {MAX_PER_MINUTE}, or `default`.", field=field
            )


def _ceiling(ceiling: int | str | None, stored: int | None) -> int | None:
    if ceiling is None:
        return stored
    return None if ceiling == DEFAULT_CEILING else int(ceiling)


def _stored_secret(secret: str) -> dict[str, bytes | str]:
    return {"secret_hash": ids.hash_secret(secret), "secret_prefix": ids.secret_prefix(secret)}
