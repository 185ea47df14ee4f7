"""Organizations as they are stored: found, and held while a change to them is decided; and who may do that."""

from stoplist.actor import Actor
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing, Refused
from stoplist.organizations.model import Organization, is_slug

_QUERIES = load_queries(__package__)
_BY_SLUG = _QUERIES["organization_by_slug"]
_LOCK = _QUERIES["lock_organization"]


def require_visible(actor: Actor, slug: str, *, field: str | None = None) -> None:
    """Missing, as where there is none, unless the actor may look at the organization; `field` is where it was named."""
    if not actor.sees(slug):
        raise _missing(slug, field)


def require_admin_of(actor: Actor, *slugs: str, field: str | None = None) -> None:
    """Missing for an organization that the actor may not see, Forbidden for one that it may only look at."""
    for slug in slugs:
        require_visible(actor, slug, field=field)
    actor.require_admin_of(*slugs)


async def find_organization(database: Database | Transaction, slug: str) -> Organization:
    """The organization of that slug, closed or not; Missing if there is none."""
    row = await database.one(_BY_SLUG, slug=slug) if is_slug(slug) else None
    return organization_of(_found(row, slug))


async def locked(transaction: Transaction, slug: str, *, field: str | None = None) -> Organization:
    """The organization, held by this transaction until it commits; Missing if there is none."""
    row = await transaction.one(_LOCK, slug=slug) if is_slug(slug) else None
    return organization_of(_found(row, slug, field))


async def locked_open(transaction: Transaction, slug: str, *, field: str | None = None) -> Organization:
    """As `locked`; Refused also if it is closed. `field` is the input that named it."""
    organization = await locked(transaction, slug, field=field)
    if organization.is_closed:
        raise Refused(f"The organization {slug} is closed, and stays as it is.", field=field)
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


def _found(row: Row | None, slug: str, field: str | None = None) -> Row:
    if row is None:
        raise _missing(slug, field)
    return row


def _missing(slug: str, field: str | None) -> Missing:
    return Missing(
        f"There is no organization {slug[:80]!r}.", field=field, command="`stoplist org list` shows those that exist."
    )
