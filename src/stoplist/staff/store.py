"""Reads accounts and people from the database, and locks an account while a change to it is decided."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

import msgspec

from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing
from stoplist.staff.model import Person, canonical_or_none

_QUERIES = load_queries(__package__)
_ACCOUNT = _QUERIES["account"]
_LOCK = _QUERIES["lock_account"]
_LOCK_OF_LINK = _QUERIES["lock_account_of_link"]
_PERSON = _QUERIES["person"]

NOT_FOUND = "There is no person with that e-mail address."


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The stored account of a person, as signing in needs it. It never leaves this folder."""

    person_id: int
    email: str
    is_disabled: bool
    password_hash: str | None
    let_in_by: str | None
    totp_secret: str | None
    totp_step: int | None


async def find_account(database: Database | Transaction, email: str) -> Account | None:
    """Return the account of a canonical address, or None."""
    return account_from_row(await database.one(_ACCOUNT, email=email))


async def lock_account(transaction: Transaction, email: str) -> Account:
    """Return the account, locked until the transaction ends; Missing if there is none."""
    canonical = canonical_or_none(email)
    account = None if canonical is None else account_from_row(await transaction.one(_LOCK, email=canonical))
    if account is None:
        raise not_found()
    return account


async def lock_account_of_link(transaction: Transaction, link_hash: bytes, now_ms: int) -> Account | None:
    """Return the account of a valid link, locked until the transaction ends, or None."""
    return account_from_row(await transaction.one(_LOCK_OF_LINK, link_hash=link_hash, now_ms=now_ms))


async def find_person(source: Database | Transaction, email: str) -> Person:
    """Return the person with all roles; Missing if there is no person with this address."""
    canonical = canonical_or_none(email)
    rows = [] if canonical is None else await source.all(_PERSON, email=canonical)
    if not rows:
        raise not_found()
    return person_from_rows(rows)


def people_from_rows(rows: Iterable[Row]) -> list[Person]:
    """Return the people in `rows`: one row per role, the rows of a person next to each other."""
    return [person_from_rows(list(of_person)) for _, of_person in groupby(rows, key=itemgetter("email"))]


def account_from_row(row: Row | None) -> Account | None:
    """Return the account in a row of one of the `account` statements, or None without a row."""
    return row and Account(
        person_id=row["person_id"],
        email=row["email"],
        is_disabled=bool(row["is_disabled"]),
        password_hash=row["password_hash"],
        let_in_by=row["let_in_by"],
        totp_secret=row["totp_secret"],
        totp_step=row["totp_step"],
    )


def person_from_rows(rows: list[Row]) -> Person:
    """Return the person whose roles these rows are."""
    first = rows[0]
    return Person(
        email=first["email"],
        is_administrator=bool(first["is_administrator"]),
        is_disabled=bool(first["is_disabled"]),
        has_password=bool(first["has_password"]),
        has_two_step=bool(first["has_two_step"]),
        roles={row["slug"]: row["role"] for row in rows if row["slug"] is not None},
        created_ms=first["created_ms"],
        last_sign_in_ms=first["last_sign_in_ms"],
    )


def not_found() -> Missing:
    """Return the same error whether the person does not exist or is not visible to the actor."""
    return Missing(NOT_FOUND, command="`stoplist user list` lists everyone.")
