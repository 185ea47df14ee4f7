"""The unit of work of an erasure: one address in one feed, behind the lock of the feed.

Source: docs/interface.md section D13.
"""

from collections.abc import Sequence
from operator import itemgetter

from stoplist import ids, rfc3339
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.lists.uploads.uploads import unfinished_upload
from stoplist.notices import outbox
from stoplist.notices.model import PERSON_ERASED
from stoplist.organizations.model import Organization
from stoplist.organizations.target import ALL_GROUPS, group_ids, lost_group
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.erased import digest_of, erased_form, key_bytes, new_digest_key, stated_address
from stoplist.unsubscribes.feed_lock import lock_feed, set_state
from stoplist.unsubscribes.feed_state import EMPTY, changed_state
from stoplist.unsubscribes.model import OptOutStores, sender_key
from stoplist.unsubscribes.record_writer import note_erasures

_QUERIES = load_queries(__package__)
_ERASE_RECORD = _QUERIES["erase_record"]
_ERASE_VERSIONS = _QUERIES["erase_versions"]
_FORGET_SOURCES = _QUERIES["forget_sources_of_links"]
_KEEP_STATES = _QUERIES["keep_erased_states"]
_RECORD_ERASURE = _QUERIES["record_erasure"]
_RECORDS = _QUERIES["records_to_erase"]
_TAKE_NUMBERS = _QUERIES["take_erasing_numbers"]

_NEVER = -1
_ATTEMPTS = 3
ERASED_ACTION = "person.erase"


class ErasureUnit:
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
        """Return the number of erased records, and the submission that erased them if there were any.

        StoreUnavailable if a record is of a group that a restore has lost.
        """
        for _ in range(_ATTEMPTS):
            found = await group_ids(self._stores.database, self._organization.organization_id)
            self._groups = {ALL_GROUPS: None, **found}
            erased = await self._stores.database.write(self._erase, queue_key=self._number)
            if erased is not None:  # else a group was created after its number was looked up
                return erased, self._submission_id if erased else None
        raise lost_group()

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
        await require_no_upload(transaction, number)  # one may have begun meanwhile
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
        """Write the submission, the notes from which reversals and histories know, the audit and the notice."""
        await self._record_submission(transaction, len(rows), first_seq=first_seq, at_ms=at_ms)
        noted = {seq: (row["id"], digest_of(erased), row["seq"]) for seq, row in enumerate(rows, first_seq)}
        await note_erasures(transaction, self._number, "erased", self._submission_id, noted, at_ms=at_ms)
        slug = self._organization.slug
        await trail.record(
            transaction,
            self._actor,
            ERASED_ACTION,
            self._submission_id,
            at_ms=at_ms,
            organizations=(slug,),
            records=len(rows),
        )
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

    async def _record_submission(self, transaction: Transaction, count: int, *, first_seq: int, at_ms: int) -> None:
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
            received=count,
            first_seq=first_seq,
            last_seq=first_seq + count - 1,
        )


async def require_no_upload(source: Database | Transaction, number: int) -> None:
    """Raise Refused if an unfinished upload for the feed of that number may hold the address."""
    upload = await unfinished_upload(source, number)
    if upload is not None:
        raise Refused(
            f"The uploaded file of the import {upload.import_id} is not finished, and may hold the address. Import it "
            f"to the end or discard it first (`stoplist import discard {upload.import_id}`). Nothing was erased here."
        )
