"""Fills a deployment with months of opt-outs for the pages to show.

They go through the product's own operations, with a clock set to the past. Two datasets differ only in the number of
records and audit entries: opt-outs arrive on the same days for the same reasons. bench/fixtures.py creates
organizations and people.
"""

import asyncio
from collections.abc import Iterator, Sequence
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
from bench.seed import filling
from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.opening import open_database
from stoplist.links.keys import create_link_key
from stoplist.lists.imports.lifecycle import begin_import
from stoplist.lists.imports.model import ImportOptions
from stoplist.oauth.model import PERMISSIONS
from stoplist.organizations.groups import list_groups
from stoplist.organizations.target import find_target_of_person
from stoplist.records.listing import list_records
from stoplist.records.search import search
from stoplist.rfc3339 import format_ms
from stoplist.secret_key import secret_keys
from stoplist.settings import load
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
    link_key_id: str
    import_id: str
    submission_id: str
    big_submission_id: str
    record_seq: int
    middle_seq: int
    long_history_seq: int


def fill(file: Path, records: int) -> Dataset:
    """Fill the feed that pages show with `records` records, and several dozen others. No server may be running."""
    dataset = asyncio.run(_fill_through_operations(file, records))
    with filling(file) as connection:
        fill_audit(connection, min(records, _MAX_AUDIT_ENTRIES))
    return dataset


def _secret_keys(file: Path) -> tuple[str, ...]:
    """Return the secret key that the server of this data folder will have."""
    return secret_keys(load({}, env_file=file.with_name("no.env"), flags={"DATA_DIR": str(file.parent)}))


async def _fill_through_operations(file: Path, records: int) -> Dataset:
    database = await open_database(f"sqlite:///{file}", create=False)
    try:
        keys = await make_organizations(database)
        tokens = await make_people(database)
        shown = await _Feeds(database, keys, records).fill()
        await use_keys(database, keys)
        link_key = await create_link_key(COMMAND, database, Clock(), secret_keys=_secret_keys(file), org_slug=SLUG)
        groups = await list_groups(COMMAND, database, org_slug=SLUG)
        newest = await list_records(COMMAND, database, org_slug=SLUG, channel=CHANNELS[CHANNEL], limit=1)
        return Dataset(
            partner=keys[SLUG],
            tokens=tokens,
            group_id=groups[0].group_id,
            link_key_id=link_key.details.link_key_id,
            import_id=await _import_of(database),
            submission_id=shown[0],
            big_submission_id=shown[1],
            record_seq=await _seq_of(database, KNOWN),
            # Half-way through the feed.
            middle_seq=newest.records[0].seq // 2,
            long_history_seq=await _seq_of(database, LONG_HISTORY),
        )
    finally:
        await database.close()


class _Feeds:
    """Submits the opt-outs of all days."""

    def __init__(self, database: Database, keys: dict[str, Partner], records: int) -> None:
        self._database, self._keys, self._records = database, keys, records
        self._people = {"email": People("email", seed=1), "sms": People("sms", seed=2)}
        self._people["phone"] = self._people["sms"]
        self._big_items = _BIG_SUBMISSION_ITEMS if records > 5 * _BIG_SUBMISSION_ITEMS else 0

    async def fill(self) -> tuple[str, str]:
        """Submit everything, oldest day first, and return the ids of the submissions that pages show.

        The second is the biggest possible submission, or empty.
        """
        shown = ("", "")
        yesterday: list[Item] = []
        for days_ago in range(DAYS, -1, -1):
            clock = clock_days_ago(days_ago)
            today = await self._submit_day(clock)
            # Some people of the day before change their minds, and one person does so every other day.
            await self._submit(SLUG, clock, [_resubscription(item, clock) for item in yesterday])
            if days_ago % 2 == 0:
                item = _item(LONG_HISTORY, clock)
                await self._submit(SLUG, clock, [item if days_ago % 4 else _resubscription(item, clock)])
            await self._submit_others(clock)
            if days_ago == 20:
                for slug in (SLUG, *OTHERS[:24:3]):
                    await self._submit(slug, clock, [_item(KNOWN, clock)])
            if days_ago == 10:
                shown = await self._submit_shown(clock)
            yesterday = today
        return shown

    async def _submit_day(self, clock: Clock) -> list[Item]:
        """Submit one day of the feed, and return one in fifty of the items."""
        # All days together, and the submissions that pages show, make the records of the feed.
        count = (self._records - _SHOWN_SUBMISSION_ITEMS - self._big_items) // (DAYS + 1)
        some: list[Item] = []
        for items in self._items(CHANNEL, clock, count):
            await self._submit(SLUG, clock, items)
            some += items[::_RESUBSCRIBED_ONE_IN]
        return some

    async def _submit_others(self, clock: Clock) -> None:
        # At least one each, so that the number of daily counts does not depend on the number of records. All at once,
        # so that they share commits.
        count = max(1, self._records // 10 // (len(_OTHER_FEEDS) * (DAYS + 1)))

        async def submit_one(slug: str, channel: str) -> None:
            for items in self._items(channel, clock, count, reason="manual"):
                await self._submit(slug, clock, items, channel)

        await asyncio.gather(*(submit_one(*feed) for feed in _OTHER_FEEDS))

    async def _submit_shown(self, clock: Clock) -> tuple[str, str]:
        """Submit the submission that pages show, of which a tenth is sent again and a tenth changed, and a big one."""
        (items,) = self._items(CHANNEL, clock, _SHOWN_SUBMISSION_ITEMS)
        shown = await self._submit(SLUG, clock, items)
        await self._submit(SLUG, clock, [_item(item.address, clock) for item in items[:_CHANGED_LATER]])
        await self._submit(SLUG, clock, [_resubscription(item, clock) for item in items[-_CHANGED_LATER:]])
        big = [item for items in self._items(CHANNEL, clock, self._big_items) for item in items]
        return shown, await self._submit(SLUG, clock, big)

    def _items(
        self, channel: str, clock: Clock, count: int, *, reason: SentReason | None = None
    ) -> Iterator[list[Item]]:
        """Yield batches of opt-outs of new people."""
        now_ms = clock.now_ms()
        for at in range(0, count, MAX_ITEMS):
            yield [
                Item(
                    address=act.address,
                    reason=reason or _REASONS[number % len(_REASONS)],
                    source="link in the newsletter",
                    occurred_at=format_ms(now_ms - 60_000 - number * 1_000),
                )
                for number, act in enumerate(self._people[channel].acts(min(count - at, MAX_ITEMS)))
            ]

    async def _submit(self, slug: str, clock: Clock, items: Sequence[Item], channel: str = CHANNEL) -> str:
        """Submit the items, if any, and return the id of the submission; empty if nothing was stored."""
        if not items:
            return ""
        key = Actor(kind="client", id=self._keys[slug].client_id, may=frozenset(PERMISSIONS), source_ip="192.0.2.9")
        stores = OptOutStores(database=self._database, clock=clock, secret_keys=())
        done = await submit(key, stores, CHANNELS[channel], RequestedTarget(), items, is_minimal=True)
        return done.submission_id or ""


async def _import_of(database: Database) -> str:
    """Begin an import that pages show; return its id."""
    clock = Clock()
    stores = OptOutStores(database=database, clock=clock, secret_keys=())
    target = await find_target_of_person(COMMAND, database, org_slug=SLUG, group_id=None)
    options = ImportOptions(now_ms=clock.now_ms())
    begun = await begin_import(
        COMMAND, stores, CHANNELS[CHANNEL], target, all_groups=True, file_name="list.csv", options=options
    )
    return begun.import_id


async def _seq_of(database: Database, address: str) -> int:
    (found,) = (await search(COMMAND, database, address)).addresses
    return next(record.seq for record in found.records if record.org_slug == SLUG)


def _item(address: str, clock: Clock) -> Item:
    return Item(address=address, occurred_at=format_ms(clock.now_ms() - 30_000))


def _resubscription(item: Item, clock: Clock) -> Item:
    return Item(address=item.address, status=RESUBSCRIBED, source="asked for it", occurred_at=format_ms(clock.now_ms()))
