"""Erase a person: the address gives way to its digest in every record and version, and the person stays barred.

Each feed is a transaction of its own, and may be repeated: what is erased is no longer found under the address.
Source: docs/interface.md section D13. Reasons: docs/decisions/0030-erasure.md.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
from stoplist_addresses import AddressError

from stoplist import __version__
from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.db.query import json_text, load_queries
from stoplist.db.schema import later_release
from stoplist.errors import Refused
from stoplist.lists.uploads.file_names import forget_file_names
from stoplist.lists.uploads.rejects import forget_rejects
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations
from stoplist.organizations.store import find_organization, require_admin_of
from stoplist.rights.erasure_unit import ErasureUnit, require_no_upload
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import CHANNELS, Channel, feed_id
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_BEGIN_ERASING = _QUERIES["begin_erasing"]
_FEEDS_THAT_KNOW = _QUERIES["feeds_that_know"]
_FIRST_ERASURE = _QUERIES["first_erasure"]

_FEEDS_AT_ONCE = 500
_NO_DIGITS = re.compile(r"\D+")


class KnownFeed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed that knows the address, and under how many records."""

    feed_id: int
    organization_id: int
    org_slug: str
    records: int


class ErasedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an erasure in one feed.

    `rejected_rows` are rows of imports that were left out and still kept; `file_names` are those of all imports of the
    organization, whatever their channel.
    """

    org_slug: str
    records: int
    rejected_rows: int
    file_names: int
    submission_id: str | None


def canonical_address(channel: Channel, address: str) -> str:
    """Return the canonical form; Refused (`address`) if it has none."""
    try:
        return channel.canonical(address)
    except AddressError as error:
        raise Refused(str(error), field="address") from None


async def needs_upgrade_confirmation(stores: OptOutStores) -> bool:
    """Return whether this would be the first erasure: a program that knows no digests would answer "no record"."""
    row = await stores.database.one(_FIRST_ERASURE)
    return row is None or row["first_erasure_ms"] is None


async def find_known_feeds(
    actor: Actor, stores: OptOutStores, channel: Channel, address: str, *, org_slug: str | None
) -> list[KnownFeed]:
    """Return the feeds that hold records under this canonical address: of one organization, or of all that the actor
    administers.

    For admins of the organization, and for administrators.
    """
    organizations = await _organizations(actor, stores, org_slug)
    by_feed = {feed_id(one.organization_id, channel): one for one in organizations}
    numbers = list(by_feed)
    known: list[KnownFeed] = []
    for at in range(0, len(numbers), _FEEDS_AT_ONCE):
        feeds = json_text(numbers[at : at + _FEEDS_AT_ONCE])
        for row in await stores.database.all(_FEEDS_THAT_KNOW, feed_ids=feeds, address=address):
            organization = by_feed[row["feed_id"]]
            if row["records"]:
                known.append(
                    KnownFeed(
                        feed_id=row["feed_id"],
                        organization_id=organization.organization_id,
                        org_slug=organization.slug,
                        records=row["records"],
                    )
                )
        await yield_to_loop()
    return known


async def erase_person(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    address: str,
    *,
    org_slug: str | None,
    is_all_upgraded: bool = False,
) -> list[ErasedFeed]:
    """Erase the person of this canonical address in one organization, or in all that the actor administers, durably.

    May be repeated. Return what was done in each feed that knew the address, or kept rejected rows or the name of a
    file with it. Refused while an upload for one of the feeds is unfinished, and for the very first erasure unless
    `is_all_upgraded`: then nothing is changed. Rights as for `find_known_feeds`.
    """
    organizations = await _organizations(actor, stores, org_slug)
    numbers = {feed_id(one.organization_id, channel): one for one in organizations}
    known = {feed.feed_id: feed for feed in await find_known_feeds(actor, stores, channel, address, org_slug=org_slug)}
    # A file for the one organization may hold the address, whether or not its records do.
    for number in known if org_slug is None else numbers:
        await require_no_upload(stores.database, number)
    if known and not is_all_upgraded and await needs_upgrade_confirmation(stores):
        raise Refused(
            "This is the first erasure. A process of an earlier release knows no digests and would answer that "
            "there is no record. Make sure that no older process serves, and confirm it; no going back after it.",
            field="all_upgraded",
        )
    if known:
        await _note_first_erasure(stores)
    names_address = _spelling_test(channel, address)
    file_names = await _forget_file_names(stores.database, organizations, names_address)
    done: list[ErasedFeed] = []
    for number, organization in numbers.items():
        rejected_rows = await forget_rejects(stores.database, number, names_address)
        erasing = ErasureUnit(actor, stores, channel, organization, address)
        records, submission_id = await erasing.run() if number in known else (0, None)
        if records or rejected_rows or file_names[organization.slug]:
            done.append(
                ErasedFeed(
                    org_slug=organization.slug,
                    records=records,
                    rejected_rows=rejected_rows,
                    file_names=file_names[organization.slug],
                    submission_id=submission_id,
                )
            )
    return done


async def _note_first_erasure(stores: OptOutStores) -> None:
    """Note the first erasure of the deployment before it: from then on no program of before this release may run."""
    deployment = await stores.database.one(_FIRST_ERASURE)
    if deployment is not None and deployment["first_erasure_ms"] is None:
        await stores.database.write_one(
            _BEGIN_ERASING,
            at_ms=stores.clock.now_ms(),
            oldest_program=later_release(deployment["oldest_program"], __version__),
        )


async def _organizations(actor: Actor, stores: OptOutStores, org_slug: str | None) -> list[Organization]:
    if org_slug is None:
        own = [one for one in await list_organizations(actor, stores.database) if actor.administers([one.slug])]
        if not own:
            actor.require_administrator()
        return own
    require_admin_of(actor, org_slug)
    return [await find_organization(stores.database, org_slug)]


async def _forget_file_names(
    database: Database, organizations: Sequence[Organization], names_address: Callable[[str], bool]
) -> Counter[str]:
    """Replace the file names with the address; return how many there were, by slug."""
    slugs = {
        feed_id(organization.organization_id, channel): organization.slug
        for organization in organizations
        for channel in CHANNELS.values()
    }
    numbers, forgotten = list(slugs), Counter[str]()
    for at in range(0, len(numbers), _FEEDS_AT_ONCE):
        found = await forget_file_names(database, numbers[at : at + _FEEDS_AT_ONCE], names_address)
        forgotten.update(slugs[number] for number in found.values())
        await yield_to_loop()
    return forgotten


def _spelling_test(channel: Channel, address: str) -> Callable[[str], bool]:
    digits = address.removeprefix("+") if address.startswith("+") else None

    def names_address(text: str) -> bool:
        if address in text.lower():  # also within a name, such as `Ann <ann@example.org>`
            return True
        if digits is not None and digits in _NO_DIGITS.sub("", text):
            return True
        try:
            return channel.canonical(text) == address
        except AddressError:
            return False

    return names_address
