"""A deployment with a past for the pages to show: months of opt-outs.

They go through the product's own operations, with a clock that stands in the past. Two pasts differ in how many records
and audit entries there are, and in nothing else: opt-outs come on the same days for the same reasons, and who is there
is in bench/fixtures.py.
"""

import asyncio
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from bench.fixtures import COMMAND, DAYS, OTHERS, SLUG, before, fill_audit, make_organizations, make_people, use_keys
from bench.sample_people import People
from bench.scripts import Partner
from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.opening import open_database
from stoplist.oauth.model import PERMISSIONS
from stoplist.organizations.groups import list_groups
from stoplist.records.listing import list_records
from stoplist.records.search import search
from stoplist.rfc3339 import format_ms
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import MAX_ITEMS, RESUBSCRIBED, Item, OptOutStores, RequestedTarget, SentReason
from stoplist.unsubscribes.submit import submit

CHANNEL = "email"
KNOWN, LIVELY = "known@known.example", "lively@known.example"

_OTHER_FEEDS = tuple(
    (slug, channel) for channel, step in (("email", 1), ("sms", 2), ("phone", 5)) for slug in OTHERS[::step]
)
_SUBMITTED, _BIG = 1_000, MAX_ITEMS
_FEW_TIMES = 100
_OF_WHOM_ONE = 50
_MOST_AUDIT = 200_000
_REASONS: tuple[SentReason, ...] = ("unsubscribe", "unsubscribe", "bounce", "complaint", "invalid_address", "manual")


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages can be asked about, and who may ask. `big_submission_id` is empty where there is none so big."""

    partner: Partner
    tokens: dict[str, str]
    group_id: str
    submission_id: str
    big_submission_id: str
    record_seq: int
    middle_seq: int
    lively_seq: int


def fill(file: Path, records: int) -> Past:
    """The queried feed has `records` records, some dozen others one a day at least. No server may be running."""
    past = asyncio.run(_filled(file, records))
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000;")
        fill_audit(connection, min(records, _MOST_AUDIT))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # Else the system writes the file back during the measurement.
    os.sync()
    return past


async def _filled(file: Path, records: int) -> Past:
    database = await open_database(f"sqlite:///{file}", create=False)
    try:
        return await _Filling(database, records).fill()
    finally:
        await database.close()


class _Filling:
    """One past in the making."""

    def __init__(self, database: Database, records: int) -> None:
        self._database, self._records = database, records
        self._mail, self._numbers = People("email", seed=1), People("sms", seed=2)
        self._keys: dict[str, Partner] = {}
        self._coming_back: list[Item] = []
        self._big = ""
        self._submission = ""

    async def fill(self) -> Past:
        """All of it, oldest day first."""
        self._keys = await make_organizations(self._database)
        tokens = await make_people(self._database)
        for ago in range(DAYS, -1, -1):
            await self._day(ago)
        await use_keys(self._database, self._keys)
        groups = await list_groups(COMMAND, self._database, org_slug=SLUG)
        record_seq, lively_seq = await self._seq_of(KNOWN), await self._seq_of(LIVELY)
        return Past(
            partner=self._keys[SLUG],
            tokens=tokens,
            group_id=groups[0].group_id,
            submission_id=self._submission,
            big_submission_id=self._big,
            record_seq=record_seq,
            middle_seq=await self._middle(),
            lively_seq=lively_seq,
        )

    async def _day(self, ago: int) -> None:
        """What arrives on one day, here and at the others."""
        stores = OptOutStores(database=self._database, clock=before(ago), secret_keys=())
        # So many a day that those of all days are the records of the feed.
        batches = list(self._items(CHANNEL, self._rest() // (DAYS + 1), ago))
        await self._submit_all(SLUG, CHANNEL, stores, batches)
        await self._come_back(stores, [item for items in batches for item in items[::_OF_WHOM_ONE]])
        await self._lively(ago, stores)
        # At least one each: the daily counts have as many rows, however few records there are. All at once: they share
        # commits.
        each = max(1, self._records // 10 // (len(_OTHER_FEEDS) * (DAYS + 1)))
        await asyncio.gather(
            *(
                self._submit_all(slug, channel, stores, self._items(channel, each, ago, reason="manual"))
                for slug, channel in _OTHER_FEEDS
            )
        )
        if ago == 20:
            for slug in (SLUG, *OTHERS[:24:3]):
                await self._submit(slug, CHANNEL, stores, [_item(KNOWN, stores.clock)])
        if ago == 10:
            await self._noted_submissions(stores)

    def _rest(self) -> int:
        """The records but for the submissions that are looked at."""
        return self._records - _SUBMITTED - (_BIG if self._has_big else 0)

    @property
    def _has_big(self) -> bool:
        return self._records > 5 * _BIG

    async def _noted_submissions(self, stores: OptOutStores) -> None:
        """The one whose page is asked for: a tenth of it was sent again since, a tenth changed. And a big one."""
        (items,) = self._items(CHANNEL, _SUBMITTED, 10)
        self._submission = await self._submit(SLUG, CHANNEL, stores, items)
        await self._submit(SLUG, CHANNEL, stores, [_item(item.address, stores.clock) for item in items[:_FEW_TIMES]])
        back = [_back(item, stores.clock) for item in items[-_FEW_TIMES:]]
        await self._submit(SLUG, CHANNEL, stores, back)
        if self._has_big:
            (items,) = self._items(CHANNEL, _BIG, 10)
            self._big = await self._submit(SLUG, CHANNEL, stores, items)

    async def _come_back(self, stores: OptOutStores, tomorrow: list[Item]) -> None:
        """Some of yesterday's have changed their minds."""
        if self._coming_back:
            back = [_back(item, stores.clock) for item in self._coming_back]
            await self._submit(SLUG, CHANNEL, stores, back)
        self._coming_back = tomorrow

    async def _lively(self, ago: int, stores: OptOutStores) -> None:
        """Somebody who changes his mind every other day."""
        if ago % 2:
            return
        item = _item(LIVELY, stores.clock)
        await self._submit(SLUG, CHANNEL, stores, [item if ago % 4 else _back(item, stores.clock)])

    def _items(self, channel: str, count: int, ago: int, *, reason: SentReason | None = None) -> Iterator[list[Item]]:
        """Batches of opt-outs of new people."""
        people, now_ms = self._mail if channel == "email" else self._numbers, before(ago).now_ms()
        for size in _parts(count):
            yield [
                Item(
                    address=act.address,
                    reason=reason or _REASONS[number % len(_REASONS)],
                    source="link in the newsletter",
                    occurred_at=format_ms(now_ms - 60_000 - number * 1_000),
                )
                for number, act in enumerate(people.acts(size))
            ]

    async def _submit_all(self, slug: str, channel: str, stores: OptOutStores, batches: Iterable[list[Item]]) -> None:
        for items in batches:
            await self._submit(slug, channel, stores, items)

    async def _submit(self, slug: str, channel: str, stores: OptOutStores, items: Sequence[Item]) -> str:
        """The id of the submission; empty where it stored nothing."""
        key = Actor(kind="client", id=self._keys[slug].client_id, may=frozenset(PERMISSIONS), source_ip="192.0.2.9")
        done = await submit(key, stores, CHANNELS[channel], RequestedTarget(), items, is_minimal=True)
        return done.submission_id or ""

    async def _seq_of(self, address: str) -> int:
        found = await search(COMMAND, self._database, address)
        return next(record.seq for record in found.records if record.org_slug == SLUG)

    async def _middle(self) -> int:
        """A change half-way through the feed, to go on from."""
        newest = await list_records(COMMAND, self._database, org_slug=SLUG, channel=CHANNELS[CHANNEL], limit=1)
        return newest.records[0].seq // 2


def _parts(count: int) -> Iterator[int]:
    """The count as batches that are taken."""
    while count > 0:
        yield min(count, MAX_ITEMS)
        count -= MAX_ITEMS


def _item(address: str, clock: Clock) -> Item:
    return Item(address=address, occurred_at=format_ms(clock.now_ms() - 30_000))


def _back(item: Item, clock: Clock) -> Item:
    return Item(address=item.address, status=RESUBSCRIBED, source="asked for it", occurred_at=format_ms(clock.now_ms()))
