"""Erase a person: the address gives way to its digest in every record and version, and the person stays barred.

Each feed is a transaction of its own, and may be repeated: what is erased is no longer found under the address.
Source: docs/interface.md section D13. Reasons: docs/decisions/0030-erasure.md.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter

import msgspec
from stoplist_addresses import AddressError

from stoplist import __version__, ids, rfc3339
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused
from stoplist.lists.uploads.rejects import forget_rejects
from stoplist.lists.uploads.uploads import unfinished_upload
from stoplist.notices import outbox
from stoplist.notices.model import PERSON_ERASED
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations
from stoplist.organizations.store import find_organization, require_admin_of
from stoplist.organizations.target import ALL_GROUPS, group_ids
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.erased import digest_of, erased_form, key_bytes, new_digest_key, stated_address
from stoplist.unsubscribes.feed_lock import lock_feed, set_state
from stoplist.unsubscribes.feed_state import EMPTY, changed_state
from stoplist.unsubscribes.model import OptOutStores, sender_key

_QUERIES = load_queries(__package__)
_NOTE_ERASURES = load_queries("stoplist.unsubscribes")["note_erasures"]
_BEGIN_ERASING = _QUERIES["begin_erasing"]
_ERASE_RECORD = _QUERIES["erase_record"]
_ERASE_VERSIONS = _QUERIES["erase_versions"]
_FEEDS_THAT_KNOW = _QUERIES["feeds_that_know"]
_FIRST_ERASURE = _QUERIES["first_erasure"]
_FORGET_SOURCES = _QUERIES["forget_sources_of_links"]
_KEEP_STATES = _QUERIES["keep_erased_states"]
_RECORD_ERASURE = _QUERIES["record_erasure"]
_RECORDS = _QUERIES["records_to_erase"]
_TAKE_NUMBERS = _QUERIES["take_erasing_numbers"]

_NEVER = -1
_FEEDS_AT_ONCE = 500
ERASED_ACTION = "person.erase"


class KnownFeed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed that knows the address, and under how many records."""

    feed_id: int
    organization_id: int
    org_slug: str
    records: int


class ErasedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an erasure in one feed. `rejected_rows` are rows of imports that were left out and still kept."""

    org_slug: str
    records: int
    rejected_rows: int
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

    May be repeated. Return what was done in each feed that knew the address, or kept rejected rows with it. Refused
    while an upload for one of the feeds is unfinished, and for the very first erasure unless `is_all_upgraded`: then
    nothing is changed. Rights as for `find_known_feeds`.
    """
    organizations = await _organizations(actor, stores, org_slug)
    numbers = {feed_id(one.organization_id, channel): one for one in organizations}
    known = {feed.feed_id: feed for feed in await find_known_feeds(actor, stores, channel, address, org_slug=org_slug)}
    # A file for the one organization may hold the address, whether or not its records do.
    for number in known if org_slug is None else numbers:
        await _require_no_upload(stores.database, number)
    if known and not is_all_upgraded and await needs_upgrade_confirmation(stores):
        raise Refused(
            "This is the first erasure. A process of an earlier release knows no digests and would answer that "
            "there is no record. Make sure that no older process serves, and confirm it; no going back after it.",
            field="all_upgraded",
        )
    names_address = _spelling_test(channel, address)
    done: list[ErasedFeed] = []
    for number, organization in numbers.items():
        rejected_rows = await forget_rejects(stores.database, number, names_address)
        erasing = _ErasingUnit(actor, stores, channel, organization, address)
        erased = await erasing.run() if number in known else (0, None)
        if erased[0] or rejected_rows:
            done.append(
                ErasedFeed(
                    org_slug=organization.slug,
                    records=erased[0],
                    rejected_rows=rejected_rows,
                    submission_id=erased[1],
                )
            )
    return done


class _ErasingUnit:
    """The erasure of one address in one feed."""

    def __init__(
        self, actor: Actor, stores: OptOutStores, channel: Channel, organization: Organization, address: str
    ) -> None:
        self._channel, number = channel, feed_id(organization.organization_id, channel)
        self._actor, self._stores, self._number, self._address = actor, stores, number, address
        self._organization = organization
        self._submission_id = ids.new_submission_id(sender_key(actor))
        self._groups: dict[int, str | None] = {}

    async def run(self) -> tuple[int, str | None]:
        """Return the number of erased records, and the submission that erased them if there were any."""
        while True:
            found = await group_ids(self._stores.database, self._organization.organization_id)
            self._groups = {ALL_GROUPS: None, **found}
            erased = await self._stores.database.write(self._erase, queue_key=self._number)
            if erased is not None:  # else a group was created after its number was looked up
                return erased, self._submission_id if erased else None

    async def _erase(self, transaction: Transaction) -> int | None:
        number, address = self._number, self._address
        locked = await lock_feed(
            transaction, number, seen_writes=_NEVER, changes=0, most=0, state=EMPTY, clock=self._stores.clock
        )
        found = await transaction.all(_RECORDS, feed_id=number, address=address)
        rows = sorted(found, key=itemgetter("seq"))
        if not rows:
            return 0  # erased or changed meanwhile
        if not self._groups.keys() >= {row["group_no"] for row in rows}:
            return None
        await _require_no_upload(transaction, number)  # one may have begun meanwhile
        taken = await transaction.one(_TAKE_NUMBERS, feed_id=number, numbers=len(rows), new_key=new_digest_key())
        if taken is None:
            raise RuntimeError("the feed's row is gone")
        erased = erased_form(key_bytes(taken["digest_key"]), address)
        first_seq = taken["head_seq"] - len(rows) + 1
        where = {"feed_id": number, "address": address, "erased": erased}
        await transaction.run(_ERASE_VERSIONS, **where)
        await transaction.run(_KEEP_STATES, **where)
        for seq, row in enumerate(rows, first_seq):
            await transaction.run(_ERASE_RECORD, **where, seq=seq, at_ms=locked.recorded_ms, group_no=row["group_no"])
        await transaction.run(_FORGET_SOURCES, feed_id=number, erased=erased)
        await self._record(transaction, rows, erased, first_seq=first_seq, at_ms=locked.recorded_ms)
        state = await changed_state(
            locked.state,
            head_seq=locked.head_seq,
            new_head_seq=taken["head_seq"],
            replaced=[(row["id"], self._groups[row["group_no"]], address, row["status"], row["seq"]) for row in rows],
            added=[
                (row["id"], self._groups[row["group_no"]], stated_address(erased), row["status"], seq)
                for seq, row in enumerate(rows, first_seq)
            ],
            pause=transaction.pause,
        )
        await set_state(transaction, number, state)
        return len(rows)

    async def _record(
        self, transaction: Transaction, rows: Sequence[Row], erased: str, *, first_seq: int, at_ms: int
    ) -> None:
        actor = self._actor
        await transaction.run(
            _RECORD_ERASURE,
            feed_id=self._number,
            submission_id=self._submission_id,
            actor_kind=actor.kind,
            actor_id=actor.id,
            request_id=actor.request_id,
            source_ip=actor.source_ip,
            received_ms=at_ms,
            received=len(rows),
            first_seq=first_seq,
            last_seq=first_seq + len(rows) - 1,
        )
        noted = {seq: (row["id"], digest_of(erased), row["seq"]) for seq, row in enumerate(rows, first_seq)}
        await transaction.run(
            _NOTE_ERASURES,
            feed_id=self._number,
            kind="erased",
            submission_id=self._submission_id,
            at_ms=at_ms,
            noted=json_text(noted),
        )
        deployment = await transaction.one(_FIRST_ERASURE)
        if deployment is not None and deployment["first_erasure_ms"] is None:
            oldest = max(deployment["oldest_program"], __version__, key=_version)
            await transaction.run(_BEGIN_ERASING, at_ms=at_ms, oldest_program=oldest)
        await trail.record(
            transaction,
            actor,
            ERASED_ACTION,
            self._submission_id,
            at_ms=at_ms,
            organizations=(self._organization.slug,),
            records=len(rows),
        )
        slug = self._organization.slug
        await outbox.add(
            transaction,
            PERSON_ERASED,
            self._submission_id,
            at_ms=at_ms,
            organizations=(slug,),
            org_slug=slug,
            channel=self._channel.name,
            address_digest=digest_of(erased),
            erased_at=rfc3339.format_ms(at_ms),
        )


async def _organizations(actor: Actor, stores: OptOutStores, org_slug: str | None) -> list[Organization]:
    if org_slug is None:
        own = [one for one in await list_organizations(actor, stores.database) if actor.administers([one.slug])]
        if not own:
            actor.require_administrator()
        return own
    require_admin_of(actor, org_slug)
    return [await find_organization(stores.database, org_slug)]


async def _require_no_upload(source: Database | Transaction, number: int) -> None:
    upload = await unfinished_upload(source, number)
    if upload is not None:
        raise Refused(
            f"The uploaded file of the import {upload.import_id} is not finished, and may hold the address. Import it "
            f"to the end or discard it first (`stoplist import discard {upload.import_id}`). Nothing was erased here."
        )


def _spelling_test(channel: Channel, address: str) -> Callable[[str], bool]:
    def names_address(cell: str) -> bool:
        if address in cell.lower():  # also within a name, such as `Ann <ann@example.org>`
            return True
        try:
            return channel.canonical(cell) == address
        except AddressError:
            return False

    return names_address


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
