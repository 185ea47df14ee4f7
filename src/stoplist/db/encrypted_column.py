"""A column of secrets that are encrypted under the secret key, and re-encrypted under its first key at each start.

Source: docs/interface.md sections D11 and D15.
"""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from stoplist import encryption
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import Query

GIVEN_UP = "lost"
"""Stored instead of a secret that no secret key can read."""

SLICE_ROWS = 100

Key = TypeVar("Key", int, str)


class SecretSource(Protocol):
    """A database, or a SQLite file opened for inspection, from which secrets can be read."""

    async def all(self, query: Query, **values: Any) -> list[Row]: ...


class EncryptedColumn(msgspec.Struct, Generic[Key], frozen=True, kw_only=True):
    """A column of secrets, and its primary key.

    key, column: their names in the rows of `after` and in the parameters of `replace`
    first:       a key before all others
    after:       reads the rows beyond the key `:after` that have a secret, at most `:max_rows`, in the order of the key
    replace:     compare-and-set: replaces the secret of a row only where it is still `:was`
    purpose:     with the key of its row, what a secret is bound to
    clear:       the form of the secrets that an older program stored in clear, if any did
    """

    key: str
    column: str
    first: Key
    after: Query
    replace: Query
    purpose: str
    clear: re.Pattern[str] | None = None

    def encrypted(self, secret_keys: Sequence[str], key: Key, secret: str) -> str:
        """Return what is stored of a secret."""
        return encryption.encrypt(secret_keys[0], secret, purpose=self._purpose(key))

    def readable(self, secret_keys: Sequence[str], key: Key, stored: str) -> str | None:
        """Return the secret, or None if no secret key can read it."""
        if self.clear is not None and self.clear.fullmatch(stored):
            return stored
        return encryption.decrypt(secret_keys, stored, purpose=self._purpose(key))

    async def unreadable(self, source: SecretSource, secret_keys: Sequence[str]) -> list[Row]:
        """Return the rows whose secrets none of the secret keys can read, without those given up."""
        return [
            row
            async for rows in self._slices(source)
            for row in rows
            if self.readable(secret_keys, row[self.key], row[self.column]) is None
        ]

    async def renew(self, database: Database, secret_keys: Sequence[str]) -> None:
        """Encrypt every secret that can be read under the first secret key.

        Safe to repeat, and while other hosts serve: each secret is replaced only if it is still the one that was read.
        """
        async for rows in self._slices(database):
            if replacements := self._replacements(rows, secret_keys):
                await self._replace(database, replacements)

    async def _slices(self, source: SecretSource) -> AsyncIterator[list[Row]]:
        after = self.first
        while rows := await source.all(self.after, after=after, max_rows=SLICE_ROWS):
            yield [row for row in rows if row[self.column] != GIVEN_UP]
            after = rows[-1][self.key]

    def _replacements(self, rows: list[Row], secret_keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the parameters of `replace` for the secrets that are not encrypted under the first secret key."""
        replacements: list[dict[str, Any]] = []
        for row in rows:
            key, stored = row[self.key], row[self.column]
            if encryption.decrypt(secret_keys[:1], stored, purpose=self._purpose(key)) is not None:
                continue
            secret = self.readable(secret_keys, key, stored)
            if secret is not None:
                renewed = self.encrypted(secret_keys, key, secret)
                replacements.append({self.key: key, "was": stored, self.column: renewed})
        return replacements

    async def _replace(self, database: Database, replacements: list[dict[str, Any]]) -> None:
        async def replace(transaction: Transaction) -> None:
            for values in replacements:
                await transaction.run(self.replace, **values)

        await database.write(replace)

    def _purpose(self, key: Key) -> str:
        return f"{self.purpose} {key}"
