"""Stored addresses that the rules of this release would write otherwise: looked for before its servers start.

The rules move with their libraries, `phonenumbers` above all; a record under a form that nobody asks for any more would
be missed. Source: docs/interface.md sections D7 and D9.
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

_QUERIES = load_queries(__package__)
_ADDRESSES_AFTER = _QUERIES["addresses_after"]
_FEEDS = _QUERIES["feeds"]

_PAGE_ROWS = 10_000


class ChangedAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """An address as it is stored, and the form it would have now or why it is none any more."""

    org_slug: str
    channel: str
    address: str
    canonical: str | None = None
    error: str | None = None


class ExaminedFeed(NamedTuple):
    """How many addresses were looked at, and those of them that would change."""

    addresses: int
    changed: list[ChangedAddress]


async def changed_addresses(actor: Actor, database: Database) -> AsyncGenerator[ExaminedFeed, None]:
    """Every stored address of every feed is looked at once, some hundred at a time, by feed and address.

    For administrators alone. What is written meanwhile may be seen or not: no snapshot lasts longer than a page.
    """
    actor.require_administrator()
    feeds = await database.all(_FEEDS)
    slugs = {known.organization_id: known.slug for known in await list_organizations(actor, database)}
    for feed in feeds:
        slug, channel = slugs[feed["organization_id"]], CHANNELS[feed["channel"]]
        async with aclosing(_addresses(database, feed["feed_id"])) as parts:
            async for addresses in parts:
                yield ExaminedFeed(
                    len(addresses), [one for each in addresses if (one := _changed(slug, channel, each))]
                )


async def _addresses(database: Database, feed_id: int) -> AsyncGenerator[Sequence[str], None]:
    """The addresses of a feed in order, each once, some at a time."""
    after, rows_of_page = "", _PAGE_ROWS
    while rows_of_page == _PAGE_ROWS:
        rows_of_page = 0
        page = database.slices(_ADDRESSES_AFTER, feed_id=feed_id, after_address=after, most=_PAGE_ROWS)
        async with aclosing(page) as parts:
            async for rows in parts:
                rows_of_page += len(rows)
                addresses = _each_once(rows, after)
                after = addresses[-1] if addresses else after
                yield addresses


def _each_once(rows: Sequence[Row], before: str) -> Sequence[str]:
    """The addresses of `rows` but for `before`: records of several groups stand one after the other."""
    addresses = dict.fromkeys(row["address"] for row in rows)
    addresses.pop(before, None)
    return list(addresses)


def _changed(org_slug: str, channel: Channel, address: str) -> ChangedAddress | None:
    try:
        canonical = channel.canonical(address)
    except AddressError as error:
        return ChangedAddress(org_slug, channel.name, address, error=str(error))
    if canonical == address:
        return None
    return ChangedAddress(org_slug, channel.name, address, canonical=canonical)
