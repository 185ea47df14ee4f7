"""Fills a deployment with months of opt-outs for the pages to show.

They go through the product's own operations, with a clock set to the past. Two datasets differ only in the number of
records and audit entries: opt-outs arrive on the same days for the same reasons. bench/fixtures.py creates
organizations and people.
"""

import asyncio
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from bench.fixtures import (
    COMMAND,
    DAYS,
    OTHERS,
    SLUG,
    clock_days_ago,
    fill_audit,
    make_organizations,
    make_people,
    use_keys,
)
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
KNOWN, LONG_HISTORY = "known@known.example", "lively@known.example"

_OTHER_FEEDS = tuple(
    (slug, channel) for channel, step in (("email", 1), ("sms", 2), ("phone", 5)) for slug in OTHERS[::step]
)
_SHOWN_SUBMISSION_ITEMS, _BIG_SUBMISSION_ITEMS = 1_000, MAX_ITEMS
_CHANGED_LATER = 100
_RESUBSCRIBED_ONE_IN = 50
_MAX_AUDIT_ENTRIES = 200_000
_REASONS: tuple[SentReason, ...] = ("unsubscribe", "unsubscribe", "bounce", "complaint", "invalid_address", "manual")


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The things that pages can show, and who may see them. `big_submission_id` is empty if there is none."""

    partner: Partner
    tokens: dict[str, str]
    group_id: str
    submission_id: str
    big_submission_id: str
    record_seq: int
    middle_seq: int
    long_history_seq: int


def fill(file: Path, records: int) -> Dataset:
    """Fill the feed that pages show with `records` records, and several dozen others. No server may be running."""
    dataset = asyncio.run(_fill_through_operations(file, records))
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000;")
        fill_audit(connection, min(records, _MAX_AUDIT_ENTRIES))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # Otherwise the system writes the file back during the measurement.
    os.sync()
    return dataset


async def _fill_through_operations(file: Path, records: int) -> Dataset:
    database = await open_database(f"sqlite:///{file}", create=False)
    try:
        return await _DatasetBuilder(database, records).fill()
    finally:
        await database.close()


class _DatasetBuilder:
    """Builds one dataset."""

    def __init__(self, database: Database, records: int) -> None:
        self._database, self._records = database, records
        self._mail, self._numbers = People("email", seed=1), People("sms", seed=2)
        self._keys: dict[str, Partner] = {}
        self._to_resubscribe: list[Item] = []
        self._big = ""
        self._submission = ""

    async def fill(self) -> Dataset:
        """Build the dataset, oldest day first."""
        self._keys = await make_organizations(self._database)
        tokens = await make_people(self._database)
        for days_ago in range(DAYS, -1, -1):
            await self._day(days_ago)
        await use_keys(self._database, self._keys)
        groups = await list_groups(COMMAND, self._database, org_slug=SLUG)
        record_seq, long_history_seq = await self._seq_of(KNOWN), await self._seq_of(LONG_HISTORY)
        return Dataset(
            partner=self._keys[SLUG],
            tokens=tokens,
            group_id=groups[0].group_id,
            submission_id=self._submission,
            big_submission_id=self._big,
            record_seq=record_seq,
            middle_seq=await self._middle_seq(),
            long_history_seq=long_history_seq,
        )

    async def _day(self, days_ago: int) -> None:
        """Submit the opt-outs of one day, of SLUG and of the others."""
        stores = OptOutStores(database=self._database, clock=clock_days_ago(days_ago), secret_keys=())
        # All days together make the records of the feed.
        batches = list(self._items(CHANNEL, self._daily_records() // (DAYS + 1), days_ago))
        await self._submit_all(SLUG, CHANNEL, stores, batches)
        await self._resubscribe_some(stores, [item for items in batches for item in items[::_RESUBSCRIBED_ONE_IN]])
        await self._extend_long_history(days_ago, stores)
        # At least one each, so that the number of daily counts does not depend on the number of records. All at once,
        # so that they share commits.
        each = max(1, self._records // 10 // (len(_OTHER_FEEDS) * (DAYS + 1)))
        await asyncio.gather(
            *(
                self._submit_all(slug, channel, stores, self._items(channel, each, days_ago, reason="manual"))
                for slug, channel in _OTHER_FEEDS
            )
        )
        if days_ago == 20:
            for slug in (SLUG, *OTHERS[:24:3]):
                await self._submit(slug, CHANNEL, stores, [_item(KNOWN, stores.clock)])
        if days_ago == 10:
            await self._submit_shown(stores)

    def _daily_records(self) -> int:
        """Return the number of records without those of the submissions that pages show."""
        return self._records - _SHOWN_SUBMISSION_ITEMS - (_BIG_SUBMISSION_ITEMS if self._has_big else 0)

    @property
    def _has_big(self) -> bool:
        return self._records > 5 * _BIG_SUBMISSION_ITEMS

    async def _submit_shown(self, stores: OptOutStores) -> None:
        """Submit the submission that pages show, of which a tenth is sent again and a tenth changed, and a big one."""
        (items,) = self._items(CHANNEL, _SHOWN_SUBMISSION_ITEMS, 10)
        self._submission = await self._submit(SLUG, CHANNEL, stores, items)
        await self._submit(
            SLUG, CHANNEL, stores, [_item(item.address, stores.clock) for item in items[:_CHANGED_LATER]]
        )
        resubscriptions = [_resubscription(item, stores.clock) for item in items[-_CHANGED_LATER:]]
        await self._submit(SLUG, CHANNEL, stores, resubscriptions)
        if self._has_big:
            (items,) = self._items(CHANNEL, _BIG_SUBMISSION_ITEMS, 10)
            self._big = await self._submit(SLUG, CHANNEL, stores, items)

    async def _resubscribe_some(self, stores: OptOutStores, tomorrow: list[Item]) -> None:
        """Resubscribe some people of the day before, and keep those of `tomorrow`."""
        if self._to_resubscribe:
            resubscriptions = [_resubscription(item, stores.clock) for item in self._to_resubscribe]
            await self._submit(SLUG, CHANNEL, stores, resubscriptions)
        self._to_resubscribe = tomorrow

    async def _extend_long_history(self, days_ago: int, stores: OptOutStores) -> None:
        """Let one person opt out or resubscribe every other day."""
        if days_ago % 2:
            return
        item = _item(LONG_HISTORY, stores.clock)
        await self._submit(SLUG, CHANNEL, stores, [item if days_ago % 4 else _resubscription(item, stores.clock)])

    def _items(
        self, channel: str, count: int, days_ago: int, *, reason: SentReason | None = None
    ) -> Iterator[list[Item]]:
        """Yield batches of opt-outs of new people."""
        people, now_ms = self._mail if channel == "email" else self._numbers, clock_days_ago(days_ago).now_ms()
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
        """Submit the items and return the id of the submission; empty if nothing was stored."""
        key = Actor(kind="client", id=self._keys[slug].client_id, may=frozenset(PERMISSIONS), source_ip="192.0.2.9")
        done = await submit(key, stores, CHANNELS[channel], RequestedTarget(), items, is_minimal=True)
        return done.submission_id or ""

    async def _seq_of(self, address: str) -> int:
        found = await search(COMMAND, self._database, address)
        return next(record.seq for record in found.records if record.org_slug == SLUG)

    async def _middle_seq(self) -> int:
        """Return the number of a change half-way through the feed."""
        newest = await list_records(COMMAND, self._database, org_slug=SLUG, channel=CHANNELS[CHANNEL], limit=1)
        return newest.records[0].seq // 2


def _parts(count: int) -> Iterator[int]:
    """Yield the sizes of the batches that make up `count` items."""
    while count > 0:
        yield min(count, MAX_ITEMS)
        count -= MAX_ITEMS


def _item(address: str, clock: Clock) -> Item:
    return Item(address=address, occurred_at=format_ms(clock.now_ms() - 30_000))


def _resubscription(item: Item, clock: Clock) -> Item:
    return Item(address=item.address, status=RESUBSCRIBED, source="asked for it", occurred_at=format_ms(clock.now_ms()))
