"""Reads what the doctor needs to know about the accounts of people."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from stoplist.db import Row
from stoplist.db.query import Query, load_queries
from stoplist.staff.totp_secrets import unreadable_secrets

_QUERIES = load_queries(__package__)
_COUNTS = _QUERIES["account_counts"]


class AccountSource(Protocol):
    """An open database, or a SQLite file that is open for inspection."""

    async def one(self, query: Query, **values: Any) -> Row | None: ...

    async def all(self, query: Query, **values: Any) -> list[Row]: ...


class AccountFacts(NamedTuple):
    """Counts of the enabled accounts, and the e-mail addresses of people whose TOTP secrets no key can read."""

    people: int = 0
    people_with_two_step: int = 0
    administrators: int = 0
    administrators_with_two_step: int = 0
    unreadable: Sequence[str] = ()


async def read_accounts(source: AccountSource, secret_keys: Sequence[str]) -> AccountFacts:
    """Return the facts on the accounts in a database that has the table of people."""
    row = await source.one(_COUNTS)
    unreadable = await unreadable_secrets(source, secret_keys)
    if row is None:
        return AccountFacts(unreadable=unreadable)
    return AccountFacts(
        people=row["people"],
        people_with_two_step=row["people_with_two_step"],
        administrators=row["administrators"],
        administrators_with_two_step=row["administrators_with_two_step"],
        unreadable=unreadable,
    )
