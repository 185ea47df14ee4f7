"""Organizations as they are stored: found, and held while a change to them is decided."""

from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.organizations.model import Organization

_QUERIES = load_queries(__package__)
_BY_SLUG = _QUERIES["organization_by_slug"]
_LOCK = _QUERIES["lock_organization"]


async def find_organization(database: Database | Transaction, slug: str) -> Organization:
    """The organization of that slug, closed or not; Refused if there is none."""
    row = await database.one(_BY_SLUG, slug=slug)
    return organization_of(_found(row, slug))


async def locked(transaction: Transaction, slug: str) -> Organization:
    """The organization, held by this transaction until it commits; Refused if there is none."""
    row = await transaction.one(_LOCK, slug=slug)
    return organization_of(_found(row, slug))


async def locked_open(transaction: Transaction, slug: str) -> Organization:
    """As `locked`; Refused also if it is closed."""
    organization = await locked(transaction, slug)
    if organization.is_closed:
        raise Refused(f"The organization {slug} is closed, and stays as it is.")
    return organization


def organization_of(row: Row) -> Organization:
    """The organization that a row of our statements describes."""
    return Organization(
        organization_id=row["organization_id"],
        slug=row["slug"],
        name=row["name"],
        default_group_id=row["default_group_id"],
        created_ms=row["created_ms"],
        closed_ms=row["closed_ms"],
    )


def _found(row: Row | None, slug: str) -> Row:
    if row is None:
        raise Refused(f"There is no organization {slug[:80]!r}: `stoplist org list` shows those that exist.")
    return row
