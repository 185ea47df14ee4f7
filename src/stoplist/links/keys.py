"""Create, list, retire, revoke and forget link keys, which are never deleted.

Source: docs/interface.md section D15; who may do what: section D11.
"""

from collections.abc import Sequence

from stoplist_addresses.link_tokens import LINK_KEY_ID_PREFIX, LinkKey

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing, Refused
from stoplist.links.key_secrets import (
    encrypted_link_key,
    readable_link_key,
    unreadable_link_keys,
    unreadable_link_keys_text,
)
from stoplist.links.model import LOST, LinkKeyDetails, NewLinkKey, details_from_row, state_of
from stoplist.organizations.store import lock_open_organization, require_admin_of, require_visible
from stoplist.unsubscribes.channel import CHANNELS, feed_id

_QUERIES = load_queries(__package__)
_COUNT_ACTS = _QUERIES["count_acts_of_link_key"]
_CREATE = _QUERIES["create_link_key"]
_FIND = _QUERIES["link_key"]
_LIST = _QUERIES["link_keys"]
_LOCK = _QUERIES["lock_link_key"]
_REPLACE_SECRET = _QUERIES["replace_link_key_secret"]
_RETIRE = _QUERIES["retire_link_key"]
_REVOKE = _QUERIES["revoke_link_key"]

ACTS_DAYS = 60
"""The number of days whose acts are counted before a key is revoked."""


async def create_link_key(
    actor: Actor, database: Database, clock: Clock, *, secret_keys: Sequence[str], org_slug: str
) -> NewLinkKey:
    """Create a link key for the organization, to be shown once. It is stored encrypted under the first secret key.

    Missing, Forbidden or Refused (closed) for an organization that the actor cannot change.
    """
    require_admin_of(actor, org_slug, field="org")
    if unreadable := await unreadable_link_keys(database, secret_keys):
        # A command with another secret key than the servers would store a link key that no server can read.
        raise Refused(f"{unreadable_link_keys_text(unreadable)}.")
    link_key, now_ms = ids.new_secret(ids.LINK_KEY), clock.now_ms()
    link_key_id = LinkKey(link_key).key_id
    stored = encrypted_link_key(secret_keys, link_key_id, link_key)

    async def create(transaction: Transaction) -> LinkKeyDetails:
        organization = await lock_open_organization(transaction, org_slug, field="org")
        await transaction.run(
            _CREATE,
            link_key_id=link_key_id,
            organization_id=organization.organization_id,
            secret=stored,
            created_ms=now_ms,
        )
        await trail.record(transaction, actor, "link_key.create", link_key_id, at_ms=now_ms, organizations=(org_slug,))
        return details_from_row(await find_link_key_row(actor, transaction, link_key_id))

    return NewLinkKey(await database.write(create), link_key)


async def list_link_keys(actor: Actor, database: Database, *, org_slug: str | None = None) -> list[LinkKeyDetails]:
    """Return the link keys that the actor may see, of one organization or of all, oldest first."""
    if org_slug is not None:
        require_visible(actor, org_slug)
    rows = await database.all(_LIST, org_slug=org_slug)
    return [details_from_row(row) for row in rows if actor.sees(row["org_slug"])]


async def show_link_key(actor: Actor, database: Database, link_key_id: str) -> LinkKeyDetails:
    """Return the link key; Missing if there is none that the actor may see."""
    return details_from_row(await find_link_key_row(actor, database, link_key_id))


async def count_acts(actor: Actor, database: Database, link_key_id: str, *, since_ms: int) -> int:
    """Return how many acts by links of the key were stored since a time. Missing as for `show_link_key`."""
    row = await find_link_key_row(actor, database, link_key_id)
    acts = 0
    for channel in CHANNELS.values():
        number = feed_id(row["organization_id"], channel)
        counted = await database.one_large(_COUNT_ACTS, feed_id=number, link_key_id=link_key_id, since_ms=since_ms)
        acts += 0 if counted is None else int(counted["acts"])
    return acts


async def retire_link_key(actor: Actor, database: Database, clock: Clock, *, link_key_id: str) -> LinkKeyDetails:
    """Retire the key: no new links should be made with it; existing links keep working. May be repeated.

    Refused if the key is revoked or forgotten.
    """
    now_ms = clock.now_ms()

    async def retire(transaction: Transaction) -> LinkKeyDetails:
        row = await _locked(transaction, actor, link_key_id)
        state = state_of(row)
        if state in ("revoked", "forgotten"):
            raise Refused(f"This link key is {state}, so its links no longer work. There is nothing to retire.")
        if state == "active":
            await transaction.run(_RETIRE, link_key_id=link_key_id, now_ms=now_ms)
            await _record(transaction, actor, "link_key.retire", row, now_ms)
        return details_from_row(await find_link_key_row(actor, transaction, link_key_id))

    return await database.write(retire)


async def revoke_link_key(actor: Actor, database: Database, clock: Clock, *, link_key_id: str) -> LinkKeyDetails:
    """Revoke the key: none of its links works from the next click on. May be repeated."""
    now_ms = clock.now_ms()

    async def revoke(transaction: Transaction) -> LinkKeyDetails:
        row = await _locked(transaction, actor, link_key_id)
        if row["revoked_ms"] is None:
            await transaction.run(_REVOKE, link_key_id=link_key_id, now_ms=now_ms)
            await _record(transaction, actor, "link_key.revoke", row, now_ms)
        return details_from_row(await find_link_key_row(actor, transaction, link_key_id))

    return await database.write(revoke)


async def forget_link_key(
    actor: Actor,
    database: Database,
    clock: Clock,
    *,
    secret_keys: Sequence[str],
    link_key_id: str,
    is_key_lost: bool = False,
) -> LinkKeyDetails:
    """Give up a link key whose secret key is lost, so that a server can start. Its links never work again.

    For administrators. Refused if one of the secret keys can read it. Refused without secret keys, too, unless
    `is_key_lost` says that no server has one. May be repeated.
    """
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def forget(transaction: Transaction) -> LinkKeyDetails:
        row = await _locked(transaction, actor, link_key_id)
        if row["secret"] != LOST:
            _require_unreadable(row, secret_keys, is_key_lost=is_key_lost)
            await transaction.run(_REPLACE_SECRET, link_key_id=link_key_id, was=row["secret"], secret=LOST)
            await _record(transaction, actor, "link_key.forget", row, now_ms)
        return details_from_row(await find_link_key_row(actor, transaction, link_key_id))

    return await database.write(forget)


async def find_link_key_row(actor: Actor, source: Database | Transaction, link_key_id: str) -> Row:
    """Return the row of a link key with its organization. Missing if there is none that the actor may see."""
    row = await source.one(_FIND, link_key_id=link_key_id) if ids.could_be_link_key_id(link_key_id) else None
    if row is None or not actor.sees(row["org_slug"]):
        raise Missing(
            f"There is no link key of that id. An id is `{LINK_KEY_ID_PREFIX}` and 16 hexadecimal digits.",
            command="`stoplist link-key list` lists the link keys.",
        )
    return row


def _require_unreadable(row: Row, secret_keys: Sequence[str], *, is_key_lost: bool) -> None:
    if not (secret_keys or is_key_lost):
        raise Refused("No secret key is known here, which proves nothing: set STOPLIST_SECRET_KEY as the servers do.")
    if readable_link_key(secret_keys, row["link_key_id"], row["secret"]) is not None:
        raise Refused(
            "This link key can be read, so its links work. `stoplist link-key retire` is for rotation, "
            "`stoplist link-key revoke` for a stolen one."
        )


async def _locked(transaction: Transaction, actor: Actor, link_key_id: str) -> Row:
    """Lock the row of a key that the actor may change until the transaction ends, and return it."""
    row = await find_link_key_row(actor, transaction, link_key_id)
    require_admin_of(actor, row["org_slug"])
    await transaction.one(_LOCK, link_key_id=link_key_id)
    return await find_link_key_row(actor, transaction, link_key_id)


async def _record(transaction: Transaction, actor: Actor, action: str, row: Row, now_ms: int) -> None:
    await trail.record(transaction, actor, action, row["link_key_id"], at_ms=now_ms, organizations=(row["org_slug"],))
