"""People as they are stored: found, and held while a change to one of them is decided."""

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
_ACCOUNT_BY_ID = _QUERIES["account_by_id"]
_LOCK = _QUERIES["lock_account"]
_LOCK_OF_LINK = _QUERIES["lock_account_of_link"]
_PERSON = _QUERIES["person"]

NOBODY = "There is nobody with that e-mail address here."


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What signing in needs of a person; no edge ever sees it."""

    person_id: int
    email: str
    is_disabled: bool
    password_hash: str | None
    let_in_by: str | None
    totp_secret: str | None
    totp_step: int | None


async def find_account(database: Database | Transaction, email: str) -> Account | None:
    """The account of a canonical address."""
    return _account(await database.one(_ACCOUNT, email=email))


async def find_account_by_id(database: Database | Transaction, person_id: int) -> Account | None:
    """The same by its number."""
    return _account(await database.one(_ACCOUNT_BY_ID, person_id=person_id))


async def lock_account(transaction: Transaction, email: str) -> Account:
    """The account, held by this transaction until it commits; Missing if there is none."""
    canonical = canonical_or_none(email)
    account = None if canonical is None else _account(await transaction.one(_LOCK, email=canonical))
    if account is None:
        raise not_found()
    return account


async def lock_account_of_link(transaction: Transaction, link_hash: bytes, now_ms: int) -> Account | None:
    """The account for which a living link was made, held likewise."""
    return _account(await transaction.one(_LOCK_OF_LINK, link_hash=link_hash, now_ms=now_ms))


async def find_person(source: Database | Transaction, email: str) -> Person:
    """The person with all his roles; Missing if there is nobody of that address."""
    canonical = canonical_or_none(email)
    rows = [] if canonical is None else await source.all(_PERSON, email=canonical)
    if not rows:
        raise not_found()
    return person_of(rows)


def people_of_rows(rows: Iterable[Row]) -> list[Person]:
    """The people whom rows of our statements describe, one row a role, those of a person together."""
    return [person_of(list(own)) for _, own in groupby(rows, key=itemgetter("email"))]


def person_of(rows: list[Row]) -> Person:
    """The one person whom these rows describe."""
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
    """One answer for people whom there are not and for those whom somebody may not see."""
    return Missing(NOBODY, command="`stoplist user list` shows those whom there are.")


def _account(row: Row | None) -> Account | None:
    return row and Account(
        person_id=row["person_id"],
        email=row["email"],
        is_disabled=bool(row["is_disabled"]),
        password_hash=row["password_hash"],
        let_in_by=row["let_in_by"],
        totp_secret=row["totp_secret"],
        totp_step=row["totp_step"],
    )
