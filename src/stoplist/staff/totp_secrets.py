"""TOTP secrets as they are stored: encrypted under the secret key, and re-encrypted under its first key at each start.

A code can only be checked against the secret itself, so a hash would not do. A secret that an older program stored in
clear is read too, and encrypted at the next start. Source: docs/interface.md section D11.
"""

import re
from collections.abc import Sequence

from stoplist.db import Database, Transaction
from stoplist.db.encrypted_column import GIVEN_UP, EncryptedColumn, SecretSource
from stoplist.db.query import load_queries
from stoplist.errors import SettingsError
from stoplist.staff.store import Account

_QUERIES = load_queries(__package__)
_REPLACE = _QUERIES["replace_totp_secret"]
_COLUMN = EncryptedColumn(
    key="person_id",
    column="totp_secret",
    first=0,
    after=_QUERIES["totp_secrets_after"],
    replace=_REPLACE,
    purpose="totp",
    clear=re.compile(r"[A-Z2-7]{32}"),
)

LOST = GIVEN_UP
"""Stored instead of a secret that no key can read: two-step sign-in stays on, with the recovery codes alone."""

_SHOWN = 5


def encrypted_secret(secret_keys: Sequence[str], person_id: int, secret: str) -> str:
    """Return what is stored of a secret."""
    return _COLUMN.encrypted(secret_keys, person_id, secret)


def readable_secret(secret_keys: Sequence[str], person_id: int, stored: str) -> str | None:
    """Return the secret, or None if no key can read it."""
    return _COLUMN.readable(secret_keys, person_id, stored)


def is_unreadable(secret_keys: Sequence[str], account: Account, *, is_key_lost: bool = False) -> bool:
    """Return whether none of the keys can read the account's secret.

    Having no key proves nothing, since servers may have one, and so is False unless the key `is_key_lost`.
    """
    stored = account.totp_secret
    if stored is None or not (secret_keys or is_key_lost):
        return False
    return readable_secret(secret_keys, account.person_id, stored) is None


async def give_up_secret(transaction: Transaction, account: Account) -> None:
    """Replace a secret that cannot be read, within a transaction that holds the person's lock."""
    await transaction.run(_REPLACE, person_id=account.person_id, was=account.totp_secret, totp_secret=LOST)


async def unreadable_secrets(source: SecretSource, secret_keys: Sequence[str]) -> list[str]:
    """Return the e-mail addresses of the people whose secrets none of the keys can read, without those given up."""
    return [row["email"] for row in await _COLUMN.unreadable(source, secret_keys)]


async def renew_encryption(database: Database, secret_keys: Sequence[str]) -> None:
    """Encrypt every secret under the first key that is not; SettingsError, without a change, if one cannot be read.

    Safe to repeat, and while other hosts serve: each secret is replaced only if it is still the one that was read.
    """
    if emails := await unreadable_secrets(database, secret_keys):
        raise SettingsError(unreadable_text(emails))
    await _COLUMN.renew(database, secret_keys)


def unreadable_text(emails: Sequence[str]) -> str:
    """Return which secrets cannot be read, and both ways on."""
    names = ", ".join(emails[:_SHOWN]) + (f" and {len(emails) - _SHOWN} more" if len(emails) > _SHOWN else "")
    return (
        f"The TOTP secrets of {names} are encrypted under a secret key that is not given: put that key behind the "
        "present one in STOPLIST_SECRET_KEY (or restore secret.key). If it is lost, run "
        "`stoplist user link EMAIL --without-two-step` for each of these people (`stoplist user enable` first, if the "
        "account is disabled), which works before the start"
    )
