"""API credentials: create, show, deactivate, activate, revoke, rotate, replace, change.

Source: docs/interface.md sections 2.1 and D2; who may do what: section D11.

Each change takes the credential's row first, so that changes go one after the other, and is seen by the very next
request: nothing about a credential is remembered between requests.
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
    client_id: str | None = None,
    token_per_minute: int | str | None = None,
    api_per_minute: int | str | None = None,
) -> NewCredential:
    """The credential exists and is active. One organization is then the default; of several one must be named.

    A `client_id` that the caller made beforehand makes one key of a form that is sent twice: AlreadyMade then. Only an
    administrator gives other ceilings than the ordinary ones; see `set_ceilings`.
    """
    _check_ceilings(actor, token_per_minute, api_per_minute)
    label = checked_name(label, "The label of a key", "label")
    default = _default_of(organizations, default_organization)
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
        _must_be_new(created)
        await _set_organizations(transaction, client_id, organizations)
        credential = await find_credential(transaction, actor, client_id)
        await _record(transaction, actor, "key.create", credential, now_ms, **_other_ceilings(credential))
        return credential

    return NewCredential(await database.write(create), secret)


async def replace_credential(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, new_client_id: str | None = None
) -> NewCredential:
    """A new active credential with the same rights stands beside the old one, which stays as it is.

    The same organizations, permissions and ceilings, and the label with `(replacement)` behind it. `new_client_id` is
    one that the caller made beforehand, as for `create_credential`. Source: docs/interface.md section 2.1.
    """
    new_id, secret, now_ms = _new_id(new_client_id), ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def replace(transaction: Transaction) -> Credential:
        old = await lock_credential(transaction, actor, client_id)
        created = await transaction.one(
            _REPLACE,
            client_id=client_id,
            new_client_id=new_id,
            label=_label_of_replacement(old.label),
            **_stored_secret(secret),
            created_ms=now_ms,
        )
        _must_be_new(created)
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
    """Every credential that the actor may see, oldest first."""
    organizations: dict[str, list[str]] = {}
    rows = await database.all(_CREDENTIALS)
    for row in await database.all(_ORGANIZATIONS_OF_ALL):
        organizations.setdefault(row["client_id"], []).append(row["slug"])
    known = [read_credential(row, organizations.get(row["client_id"], [])) for row in rows]
    return [visible_part(actor, credential) for credential in known if any(map(actor.sees, credential.organizations))]


async def show_credential(actor: Actor, database: Database, *, client_id: str) -> Credential:
    """The credential of that id; Missing if there is none that the actor may see."""
    return await find_credential(database, actor, client_id)


async def deactivate_credential(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """The credential is inactive and every token of it is revoked, from the very next request on."""
    return await _switch(actor, database, clock, client_id, _DEACTIVATE, "key.deactivate", to_active=False)


async def activate_credential(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """The credential can get tokens again; tokens that were revoked stay so."""
    return await _switch(actor, database, clock, client_id, _ACTIVATE, "key.activate", to_active=True)


async def revoke_tokens(actor: Actor, database: Database, clock: Clock, *, client_id: str) -> Credential:
    """Every token of the credential is revoked, from the very next request on; its secret stays good."""
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
    """Every token of every credential is revoked; returns how many credentials there are."""
    return await transaction.run(_REVOKE_EVERYTHING)


async def rotate_secret(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, expected_prefix: str | None = None
) -> NewCredential:
    """The credential has a new secret; the old one and every token are dead from the very next request on.

    With `expected_prefix` only if that is the beginning of its secret now, else AlreadyMade: so a form that is sent
    twice rotates once.
    """
    secret, now_ms = ids.new_secret(ids.CLIENT_SECRET), clock.now_ms()

    async def rotate(transaction: Transaction) -> Credential:
        credential = await lock_credential(transaction, actor, client_id)
        if expected_prefix not in (None, credential.secret_prefix):
            raise AlreadyMade(
                "The secret was changed meanwhile, perhaps by this form, sent twice: the new one was shown once. "
                "Rotate it again only if nobody has kept it."
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
    """The credential has these ceilings: a number of requests in 60 s, `default`, or None to leave it as it is.

    For administrators alone, whatever the organizations of the key.
    """
    actor.require_administrator()
    _check_ceilings(actor, token_per_minute, api_per_minute)
    now_ms = clock.now_ms()

    async def change(transaction: Transaction) -> Credential:
        organizations = (await lock_credential(transaction, actor, client_id)).organizations
        (known,) = await transaction.all(_CEILINGS, client_id=client_id)
        wanted = {
            "token_per_minute": _ceiling(token_per_minute, known["token_per_minute"]),
            "api_per_minute": _ceiling(api_per_minute, known["api_per_minute"]),
        }
        if wanted != {name: known[name] for name in wanted}:
            await transaction.run(_SET_CEILINGS, client_id=client_id, **wanted)
            was = {name: known[name] for name in wanted}
            await trail.record(
                transaction,
                actor,
                "key.limits",
                client_id,
                at_ms=now_ms,
                organizations=organizations,
                **wanted,
                was=was,
            )
        return await find_credential(transaction, actor, client_id)

    return await database.write(change)


async def update_credential(
    actor: Actor, database: Database, clock: Clock, *, client_id: str, changes: Changes
) -> Credential:
    """What `changes` gives replaces what was; living tokens follow at once. Refused if the default is not covered.

    The actor administers every organization that the credential covers, both before and afterwards.
    """
    label = None if changes.label is None else checked_name(changes.label, "The label of a key", "label")
    if changes.permissions is not None:
        _check_permissions(changes.permissions)
    now_ms = clock.now_ms()

    async def update(transaction: Transaction) -> Credential:
        known = await lock_credential(transaction, actor, client_id)
        permissions = frozenset(known.permissions) if changes.permissions is None else changes.permissions
        default = _new_default(known, changes)
        if changes.organizations is not None and set(changes.organizations) != set(known.organizations):
            await _lock_open(transaction, actor, changes.organizations)
            await _set_organizations(transaction, client_id, changes.organizations)
        elif default != known.default_organization:
            await _lock_open(transaction, actor, [default], field="default_organization")
        await transaction.run(
            _UPDATE,
            client_id=client_id,
            label=known.label if label is None else label,
            permissions=permissions_text(permissions),
            default_organization=default,
        )
        credential = await find_credential(transaction, actor, client_id)
        if credential != known:
            await _record(transaction, actor, "key.update", credential, now_ms, known=known, was=_rights(known))
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
    """Refuse organizations that do not exist, are closed or not the actor's, and hold them.

    In one order, so that none deadlock.
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
    known: Credential | None = None,
    **detail: Any,
) -> None:
    """What the credential is now; it concerns the organizations that it covers, and those that it covered."""
    await trail.record(
        transaction,
        actor,
        action,
        credential.client_id,
        at_ms=now_ms,
        organizations=credential.organizations + (known.organizations if known else []),
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


def _label_of_replacement(label: str) -> str:
    """`Shop` gives `Shop (replacement)`, then `Shop (replacement 2)`; what is too long loses its end first."""
    found = _REPLACEMENT.match(label)
    name, number = (found["name"], int(found["number"] or 1) + 1) if found else (label, 1)
    ending = " (replacement)" if number == 1 else f" (replacement {number})"
    return name[: MAX_NAME_CHARS - len(ending)].rstrip() + ending


def _new_id(client_id: str | None) -> str:
    """The id that the caller made, or a fresh one."""
    if client_id is not None and not ids.could_be_id(client_id, ids.CLIENT_ID):
        raise Refused("This form is damaged, or was not made here: open it anew.")
    return client_id or ids.new_id(ids.CLIENT_ID)


def _must_be_new(created: Any) -> None:
    if created is None:
        raise AlreadyMade("This form was sent already: the key was made, and its secret was shown once.")


def _default_of(organizations: Sequence[str], default: str | None) -> str:
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


def _new_default(known: Credential, changes: Changes) -> str:
    """The default after an update: the one named, else the old one if it is still covered, else the only one."""
    organizations = known.organizations if changes.organizations is None else changes.organizations
    default = changes.default_organization
    if default is None and known.default_organization in organizations:
        default = known.default_organization
    return _default_of(organizations, default)


def _check_permissions(permissions: frozenset[str]) -> None:
    if not permissions or not permissions <= set(PERMISSIONS):
        raise Refused(f"The permissions of a key are one or more of: {', '.join(PERMISSIONS)}.", field="permissions")


def _check_ceilings(actor: Actor, token_per_minute: int | str | None, api_per_minute: int | str | None) -> None:
    for field, ceiling in (("token_per_minute", token_per_minute), ("api_per_minute", api_per_minute)):
        if ceiling is not None and not actor.is_administrator:
            raise Forbidden("Only an administrator gives a key other ceilings: ask one.", field=field)
        if ceiling in (None, DEFAULT_CEILING):
            continue
        if not isinstance(ceiling, int) or not 1 <= ceiling <= MAX_PER_MINUTE:
            raise Refused(
                f"A ceiling is a whole number of requests from 1 to {MAX_PER_MINUTE}, or `default`.", field=field
            )


def _ceiling(wanted: int | str | None, known: int | None) -> int | None:
    if wanted is None:
        return known
    return None if wanted == DEFAULT_CEILING else int(wanted)


def _stored_secret(secret: str) -> dict[str, bytes | str]:
    return {"secret_hash": ids.hash_secret(secret), "secret_prefix": ids.secret_prefix(secret)}
