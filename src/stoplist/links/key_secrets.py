"""Encrypts link keys under the secret key, and encrypts them again under its first key at each start.

The server needs the link key to read a link, so storing a hash is not enough. Source: docs/interface.md section D15.
"""

from collections.abc import Sequence

from stoplist.db import Database
from stoplist.db.encrypted_column import EncryptedColumn, SecretSource
from stoplist.db.query import load_queries
from stoplist.errors import SettingsError

_QUERIES = load_queries(__package__)
_COLUMN = EncryptedColumn(
    key="link_key_id",
    column="secret",
    first="",
    after=_QUERIES["link_key_secrets_after"],
    replace=_QUERIES["replace_link_key_secret"],
    purpose="link key",
)
_SHOWN = 5


def encrypted_link_key(secret_keys: Sequence[str], link_key_id: str, link_key: str) -> str:
    """Return a link key as it is stored."""
    return _COLUMN.encrypted(secret_keys, link_key_id, link_key)


def readable_link_key(secret_keys: Sequence[str], link_key_id: str, stored: str) -> str | None:
    """Return the link key, or None if no secret key can read it."""
    return _COLUMN.readable(secret_keys, link_key_id, stored)


async def unreadable_link_keys(source: SecretSource, secret_keys: Sequence[str]) -> list[str]:
    """Return the ids of the link keys that none of the secret keys can read, except those given up."""
    return [row["link_key_id"] for row in await _COLUMN.unreadable(source, secret_keys)]


async def renew_link_keys(database: Database, secret_keys: Sequence[str]) -> None:
    """Encrypt every link key under the first secret key. SettingsError, and no change, if one cannot be read.

    Safe to repeat, and while other hosts serve: each is replaced only if it has not changed since it was read.
    """
    if unreadable := await unreadable_link_keys(database, secret_keys):
        raise SettingsError(unreadable_link_keys_text(unreadable))
    await _COLUMN.renew(database, secret_keys)


def unreadable_link_keys_text(link_key_ids: Sequence[str]) -> str:
    """Return a text that names the link keys that cannot be read, and both remedies."""
    names = ", ".join(link_key_ids[:_SHOWN])
    more = len(link_key_ids) - _SHOWN
    return (
        f"The link keys {names}{f' and {more} more' if more > 0 else ''} are encrypted under a secret key that is not "
        "given: put that key behind the present one in STOPLIST_SECRET_KEY (or restore secret.key). If it is lost, run "
        "`stoplist link-key forget ID` for each of them, which works before the start: their links then stop working"
    )
