"""The list of all erasures, kept beside the backups: it names nobody, and repeats the erasures after a restore.

A line is JSON: organization, channel, fingerprint of the feed's digest key, digest and time.
Source: docs/interface.md section D13.
"""

from collections.abc import AsyncIterator, Iterable, Mapping

import msgspec

from stoplist import rfc3339
from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.rights.erasure import erase_person
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.changed_addresses import stored_addresses
from stoplist.unsubscribes.channel import CHANNELS, Channel, feed_id
from stoplist.unsubscribes.erased import PREFIX, digest_of, erased_form, key_bytes, key_fingerprint
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_ERASURES = _QUERIES["erasures"]
_FEEDS = _QUERIES["feeds_with_digest_keys"]
_RETURNS = _QUERIES["returns"]

_PAGE_ROWS = 1_000


class Erasure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person who was erased in a feed: nobody can tell who without the feed's digest key, and the address."""

    org_slug: str
    channel: str
    key_fingerprint: str
    address_digest: str
    erased_at: str


class Unapplied(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure that cannot be repeated, and why."""

    org_slug: str
    channel: str
    address_digest: str
    why: str


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of erasures that were repeated, and were not.

    `already`: erased before. `unknown`: nobody whom the database knows. `returned`: resubscribed since.
    """

    erased: int = 0
    already: int = 0
    unknown: int = 0
    returned: int = 0
    unapplied: list[Unapplied] = []


async def list_erasures(actor: Actor, database: Database) -> AsyncIterator[Erasure]:
    """Yield every erasure, ordered by feed and digest; a person once for each feed. For administrators."""
    actor.require_administrator()
    slugs = {one.organization_id: one.slug for one in await list_organizations(actor, database)}
    for feed in await database.all(_FEEDS):
        after, is_last = "", not feed["has_erased"]
        while not is_last:
            rows = await database.all(_ERASURES, feed_id=feed["feed_id"], after=after, most=_PAGE_ROWS)
            for row in rows:
                yield Erasure(
                    org_slug=slugs[feed["organization_id"]],
                    channel=feed["channel"],
                    key_fingerprint=key_fingerprint(feed["digest_key"]),
                    address_digest=row["digest"],
                    erased_at=rfc3339.format_ms(row["erased_ms"]),
                )
            is_last = len(rows) < _PAGE_ROWS
            after = rows[-1]["digest"] if rows else after


def read_erasures(lines: Iterable[bytes]) -> list[Erasure]:
    """Return the erasures of a file; Refused, with the line, if it is invalid."""
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(msgspec.json.decode(line, type=Erasure))
            except msgspec.MsgspecError:
                raise Refused(
                    f"Line {number} is no erasure: name a file that `stoplist person erasures --to FILE` wrote."
                ) from None
    return found


async def apply_erasures(
    actor: Actor, stores: OptOutStores, erasures: Iterable[Erasure], *, is_all_upgraded: bool
) -> Applied:
    """Repeat erasures after a restore, durably; may be repeated. For administrators. Refused as for `erase_person`.

    Every address of a feed with erasures is read, since nobody can find an address by its digest.
    """
    actor.require_administrator()
    by_feed: dict[tuple[str, str], list[Erasure]] = {}
    for erasure in erasures:
        by_feed.setdefault((erasure.org_slug, erasure.channel), []).append(erasure)
    organizations = {one.slug: one for one in await list_organizations(actor, stores.database)}
    keys = {row["feed_id"]: row["digest_key"] for row in await stores.database.all(_FEEDS)}
    applied = Applied()
    for (slug, channel_name), wanted in by_feed.items():
        channel = CHANNELS.get(channel_name)
        organization = organizations.get(slug)
        key = None
        if channel is not None and organization is not None:
            key = keys.get(feed_id(organization.organization_id, channel))
        fingerprint = None if key is None else key_fingerprint(key)
        good = [one for one in wanted if one.key_fingerprint == fingerprint]
        bad = [
            Unapplied(
                org_slug=slug,
                channel=channel_name,
                address_digest=one.address_digest,
                why="this database has no such feed" if key is None else "the feed has another digest key",
            )
            for one in wanted
            if one.key_fingerprint != fingerprint
        ]
        applied = _sum(applied, Applied(unapplied=bad))
        if good and key is not None and channel is not None and organization is not None:
            number = feed_id(organization.organization_id, channel)
            done = await _apply(actor, stores, channel, slug, number, key_bytes(key), good, is_all_upgraded)
            applied = _sum(applied, done)
    return applied


async def _apply(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    slug: str,
    number: int,
    key: bytes,
    wanted: list[Erasure],
    is_all_upgraded: bool,
) -> Applied:
    erased_ms = {one.address_digest: rfc3339.parse_ms(one.erased_at) or 0 for one in wanted}
    returned_ms = {row["digest"]: row["at_ms"] for row in await stores.database.all(_RETURNS, feed_id=number)}
    known, plain = await _find(stores.database, number, key, erased_ms)
    erased = returned = 0
    for digest, address in plain.items():
        if returned_ms.get(digest, -1) > erased_ms[digest]:
            returned += 1
            continue
        await erase_person(actor, stores, channel, address, org_slug=slug, is_all_upgraded=is_all_upgraded)
        erased += 1
        await yield_to_loop()
    already = len(known - plain.keys())
    unknown = len(erased_ms) - already - len(plain)
    return Applied(erased=erased, already=already, unknown=unknown, returned=returned)


async def _find(
    database: Database, number: int, key: bytes, wanted: Mapping[str, int]
) -> tuple[set[str], dict[str, str]]:
    """Return the digests under which the feed holds erased records, and the addresses of the others that it holds."""
    known: set[str] = set()
    plain: dict[str, str] = {}
    async for addresses in stored_addresses(database, number):
        async for part in in_slices(addresses, yield_to_loop):
            for address in part:
                digest = digest_of(address)
                if digest is not None:
                    known |= {digest} & wanted.keys()
                    continue
                digest = erased_form(key, address).removeprefix(PREFIX)
                if digest in wanted:
                    plain[digest] = address
    return known, plain


def _sum(one: Applied, other: Applied) -> Applied:
    return Applied(
        erased=one.erased + other.erased,
        already=one.already + other.already,
        unknown=one.unknown + other.unknown,
        returned=one.returned + other.returned,
        unapplied=one.unapplied + other.unapplied,
    )
