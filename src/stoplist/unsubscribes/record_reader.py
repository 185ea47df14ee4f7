"""Reads the records that a batch meets, while the rest of the batch is still being checked."""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection
from operator import attrgetter
from typing import NamedTuple

import msgspec

from stoplist.db import HEAVY_ROWS, Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.decision import CurrentRecord
from stoplist.unsubscribes.erased import PREFIX, address_digests, digest_of, form_of, stated_address
from stoplist.unsubscribes.feed import Feed
from stoplist.unsubscribes.items import Act

_QUERIES = load_queries(__package__)
_FIND_CURRENT_RECORDS = _QUERIES["current_records"]
_FIND_ERASED_FORMS = _QUERIES["erased_forms_of_feed"]
_FIND_ERASED_RECORDS = _QUERIES["erased_records"]
_FIND_NOTES = _QUERIES["erasures_of_digests"]
_CURRENT_RECORDS = msgspec.json.Decoder(list[CurrentRecord])
_ERASED_FORMS = msgspec.json.Decoder(list[str])
_ERASED_RECORDS = msgspec.json.Decoder(list[tuple[int, CurrentRecord]])
_AFTER_PREFIX = PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)

# Up to so many erased records of a feed are read as one set. That takes less time than looking for each person of a
# big batch, of whom hardly any was erased.
_FEW_ERASED = 2_000
_ADDRESSES_PER_SLICE = 100  # about 60 microseconds of work

ReadRow = Callable[..., Awaitable[Row | None]]
Pause = Callable[[], Awaitable[None]]


class FoundRecords(NamedTuple):
    """The records that a batch meets, by the address of its acts.

    `erased` has the erased form of each address that has an erased record in the feed, whatever its group.
    """

    by_address: dict[str, CurrentRecord]
    erased: dict[str, str]

    def is_unknown(self, address: str) -> bool:
        """Return whether it is a digest of which the feed has no record."""
        return digest_of(address) is not None and address not in self.by_address and address not in self.erased


class _Note(msgspec.Struct, array_like=True, gc=False):
    """A change that erased an address, or brought one back. `address`: of its state now, None if that was deleted."""

    seq: int
    kind: str
    record_id: str
    digest: str
    address: str | None


_NOTES = msgspec.json.Decoder(list[_Note])


class RecordReader:
    """Reads the records that a batch meets, part by part, while the rest of the batch is validated.

    The parts may be of different moments. If that matters, the lock reveals that another batch was written.
    """

    def __init__(self, database: Database, feed: Feed | None, group_no: int) -> None:
        self._database, self._feed, self._group_no = database, feed, group_no
        self._parts: list[asyncio.Task[FoundRecords]] = []

    def start(self, acts: list[Act]) -> None:
        """Start to read the records of these acts. A feed that does not exist yet has none."""
        if self._feed is None:
            return
        feed_keys = {"feed_id": self._feed.feed_id, "group_no": self._group_no}
        read = self._database.one_large if len(acts) > HEAVY_ROWS else self._database.one
        reading = read_current_records(read, feed_keys, acts, erasing_key=self._feed.erasing_key, pause=yield_to_loop)
        self._parts.append(asyncio.create_task(reading))

    async def records(self) -> FoundRecords:
        """Return all records."""
        found = FoundRecords({}, {})
        for part in self._parts:
            by_address, erased = await part
            for address, record in by_address.items():
                found.by_address.setdefault(address, record)
            found.erased.update(erased)
        return found

    async def end(self) -> None:
        """Wait until all reads have ended."""
        await asyncio.gather(*self._parts, return_exceptions=True)


async def read_current_records(
    read_row: ReadRow, feed_keys: dict[str, int], acts: list[Act], *, erasing_key: bytes | None, pause: Pause
) -> FoundRecords:
    """Return the records of the acts' addresses; given an `erasing_key`, the erased records of their persons, too."""
    # Sorted, because adjacent entries of the index are read together.
    addresses = sorted({act.address for act in acts})
    forms = set(_forms_among(addresses))
    unnamed: set[str] = set()
    if forms and erasing_key is not None:
        names, unnamed = await _returned(read_row, feed_keys["feed_id"], forms)
        for act in acts:
            act.address = names.get(act.address, act.address)
        addresses = sorted({act.address for act in acts})
    row = await read_row(_FIND_CURRENT_RECORDS, **feed_keys, addresses=json_text(addresses))
    records = row["records"] if row is not None else None
    found = _CURRENT_RECORDS.decode(records) if records is not None else []
    by_address = {record.address: record for record in found}
    if erasing_key is None:
        return FoundRecords(by_address, {})
    erased = await _read_erased(read_row, feed_keys, addresses, erasing_key, pause)
    for form in unnamed - by_address.keys():
        erased.erased.pop(form, None)
    # A record that was erased, or brought back, between the two reads: the lock reveals it.
    return FoundRecords(erased.by_address | by_address, erased.erased)


async def _read_erased(
    read_row: ReadRow, feed_keys: dict[str, int], addresses: list[str], erasing_key: bytes, pause: Pause
) -> FoundRecords:
    few = await _few_digests(read_row, feed_keys["feed_id"]) if len(addresses) >= _FEW_ERASED else None
    by_form: dict[str, str] = {}
    async for part in in_slices(addresses, pause, check_every=_ADDRESSES_PER_SLICE):
        digests = address_digests(erasing_key, part)
        if few is None or not few.isdisjoint(digests):
            both = zip(digests, part, strict=True)
            by_form.update((form_of(digest.hex()), address) for digest, address in both if few is None or digest in few)
    by_form.update({form: form for form in _forms_among(addresses)})
    if not by_form:
        return FoundRecords({}, {})
    row = await read_row(_FIND_ERASED_RECORDS, feed_id=feed_keys["feed_id"], addresses=json_text(sorted(by_form)))
    records = row["records"] if row is not None else None
    by_address: dict[str, CurrentRecord] = {}
    erased: dict[str, str] = {}
    for group_no, record in _ERASED_RECORDS.decode(records) if records is not None else ():
        address = by_form[record.address]
        erased[address] = record.address
        if group_no == feed_keys["group_no"]:
            by_address[address] = record
    return FoundRecords(by_address, erased)


def _forms_among(addresses: list[str]) -> list[str]:
    """Return the erased forms among sorted addresses: rows that are imported by digest."""
    return addresses[bisect_left(addresses, PREFIX) : bisect_left(addresses, _AFTER_PREFIX)]


async def _returned(read_row: ReadRow, feed_id: int, forms: Collection[str]) -> tuple[dict[str, str], set[str]]:
    """Return the addresses of those whom a resubscription has brought back since, by erased form.

    Also the forms of those whose address is back, but cannot be told, because retention has deleted that state.
    """
    row = await read_row(_FIND_NOTES, feed_id=feed_id, digests=json_text(sorted(map(stated_address, forms))))
    notes = _NOTES.decode(row["notes"]) if row is not None and row["notes"] is not None else []
    latest = {note.record_id: note for note in sorted(notes, key=attrgetter("seq"))}
    returned = [note for note in latest.values() if note.kind == "returned"]
    names = {form_of(note.digest): note.address for note in returned if note.address is not None}
    return names, {form_of(note.digest) for note in returned} - names.keys()


async def _few_digests(read_row: ReadRow, feed_id: int) -> set[bytes] | None:
    """Return the digests of all erased persons of the feed; None if there are too many of them."""
    row = await read_row(_FIND_ERASED_FORMS, feed_id=feed_id, most=_FEW_ERASED + 1)
    forms = _ERASED_FORMS.decode(row["forms"]) if row is not None and row["forms"] is not None else []
    return None if len(forms) > _FEW_ERASED else {bytes.fromhex(stated_address(form)) for form in forms}
