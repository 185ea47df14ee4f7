"""Find stored addresses that the rules of this release would write differently, before its servers start.

The rules change with their libraries, above all `phonenumbers`. A record stored under an outdated form would never be
found again. Source: docs/interface.md sections D7 and D9.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec
from stoplist_addresses import AddressError

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import load_queries
from stoplist.organizations.organizations import list_organizations
from stoplist.unsubscribes.channel import CHANNELS, Channel
from stoplist.unsubscribes.erased import digest_of

_QUERIES = load_queries(__package__)
_ADDRESSES_AFTER = _QUERIES["addresses_after"]
_FEEDS = _QUERIES["feeds"]

_PAGE_ROWS = 10_000


class ChangedAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored address, and either its canonical form under the present rules or the reason why it has none."""

    org_slug: str
    channel: str
    address: str
    canonical: str | None = None
    error: str | None = None


class ExaminedAddresses(NamedTuple):
    """The number of addresses examined in one slice of a feed, and those of them that would change.

    `erased` is the number of those that nobody can judge, because a digest stands in their place.
    """

    addresses: int
    changed: list[ChangedAddress]
    erased: int


async def find_changed_addresses(actor: Actor, database: Database) -> AsyncGenerator[ExaminedAddresses, None]:
    """Yield the result for each slice of a few hundred stored addresses, ordered by feed and address.

    For administrators only. Every address is examined once. Addresses written meanwhile may or may not be included: no
    snapshot lasts longer than a page.
    """
    actor.require_administrator()
    feeds = await database.all(_FEEDS)
    slugs = {
        organization.organization_id: organization.slug for organization in await list_organizations(actor, database)
    }
    for feed in feeds:
        slug, channel = slugs[feed["organization_id"]], CHANNELS[feed["channel"]]
        async with aclosing(stored_addresses(database, feed["feed_id"])) as slices:
            async for addresses in slices:
                known = [address for address in addresses if digest_of(address) is None]
                yield ExaminedAddresses(
                    len(known),
                    [changed for address in known if (changed := _check_address(slug, channel, address))],
                    len(addresses) - len(known),
                )


async def stored_addresses(database: Database, feed_id: int) -> AsyncGenerator[Sequence[str], None]:
    """Yield the distinct addresses of a feed in order, as they are stored, in slices."""
    after, rows_of_page = "", _PAGE_ROWS
    while rows_of_page == _PAGE_ROWS:
        rows_of_page = 0
        page = database.slices(_ADDRESSES_AFTER, feed_id=feed_id, after_address=after, most=_PAGE_ROWS)
        async with aclosing(page) as slices:
            async for rows in slices:
                rows_of_page += len(rows)
                addresses = _distinct_addresses(rows, after)
                after = addresses[-1] if addresses else after
                yield addresses


def _distinct_addresses(rows: Sequence[Row], before: str) -> Sequence[str]:
    """Return the distinct addresses of `rows`, without `before`. Records of several groups are adjacent rows."""
    addresses = dict.fromkeys(row["address"] for row in rows)
    addresses.pop(before, None)
    return list(addresses)


def _check_address(org_slug: str, channel: Channel, address: str) -> ChangedAddress | None:
    try:
        canonical = channel.canonical(address)
    except AddressError as error:
        return ChangedAddress(org_slug, channel.name, address, error=str(error))
    if canonical == address:
        return None
    return ChangedAddress(org_slug, channel.name, address, canonical=canonical)
