"""Reads organizations from the database, locks them for a change, and checks who may see or change them."""

from stoplist.actor import Actor
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Missing, Refused
from stoplist.organizations.model import Organization, is_slug

_QUERIES = load_queries(__package__)
_BY_SLUG = _QUERIES["organization_by_slug"]
_LOCK = _QUERIES["lock_organization"]
_UID = _QUERIES["uid_of_organization"]


def require_visible(actor: Actor, slug: str, *, field: str | None = None) -> None:
    """Raise Missing, as if there were no such organization, unless the actor may see it.

    `field` is the input field that named the organization.
    """
    if not actor.sees(slug):
        raise _missing(slug, field)


def require_admin_of(actor: Actor, *slugs: str, field: str | None = None) -> None:
    """Raise Missing for an organization that the actor may not see, Forbidden for one that the actor may only see."""
    for slug in slugs:
        require_visible(actor, slug, field=field)
    actor.require_admin_of(*slugs)


async def find_organization(database: Database | Transaction, slug: str) -> Organization:
    """Return the organization with that slug, closed or not; Missing if there is none."""
    row = await database.one(_BY_SLUG, slug=slug) if is_slug(slug) else None
    return organization_from_row(_require_row(row, slug))


async def organization_uid(database: Database, organization_id: int) -> str | None:
    """Return the random id of the organization, which no other one ever has, as its number may after a restore.

    None where an older program created the organization in a SQLite file.
    """
    row = await database.one(_UID, organization_id=organization_id)
    return None if row is None else row["uid"]


async def lock_organization(transaction: Transaction, slug: str, *, field: str | None = None) -> Organization:
    """Return the organization, locked until the transaction ends; Missing if there is none."""
    row = await transaction.one(_LOCK, slug=slug) if is_slug(slug) else None
    return organization_from_row(_require_row(row, slug, field))


async def lock_open_organization(transaction: Transaction, slug: str, *, field: str | None = None) -> Organization:
    """Return the organization, locked until the transaction ends; Missing if there is none, Refused if it is closed.

    `field` is the input field that named the organization.
    """
    organization = await lock_organization(transaction, slug, field=field)
    if organization.is_closed:
        raise Refused(f"The organization {slug} is closed and cannot be changed.", field=field)
    return organization


def organization_from_row(row: Row) -> Organization:
    """Return the organization of a row."""
    return Organization(
        organization_id=row["organization_id"],
        slug=row["slug"],
        name=row["name"],
        default_group_id=row["default_group_id"],
        created_ms=row["created_ms"],
        closed_ms=row["closed_ms"],
        contact_line=row["contact_line"],
        accent_colour=row["accent_colour"],
    )


def _require_row(row: Row | None, slug: str, field: str | None = None) -> Row:
    if row is None:
        raise _missing(slug, field)
    return row


def _missing(slug: str, field: str | None) -> Missing:
    return Missing(
        f"There is no organization {slug[:80]!r}.", field=field, command="`stoplist org list` lists the organizations."
    )
