"""Fills a deployment with what the pages show: organizations, people, keys, months of opt-outs, and an audit.

All of it goes through the product's own operations, with a clock set to the past, except the audit, whose rows are all
alike. Two datasets differ only in the number of records and audit entries: opt-outs arrive on the same days for the
same reasons.
"""

import asyncio
import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.sample_people import People
from bench.scripts import Partner
from bench.seed import filling
from bench.server import BenchError
from stoplist import ids
from stoplist.actor import ADMIN, ADMINISTER, VIEWER, Actor
from stoplist.audit.actions import ACTIONS
from stoplist.clock import DAY_MS, Clock
from stoplist.db import Database
from stoplist.links.keys import create_link_key
from stoplist.lists.imports.lifecycle import begin_import
from stoplist.lists.imports.model import ImportOptions
from stoplist.oauth.credentials import create_credential
from stoplist.oauth.model import PERMISSIONS
from stoplist.oauth.usage import Usage
from stoplist.organizations.groups import create_group, list_groups
from stoplist.organizations.organizations import create_organization
from stoplist.organizations.target import find_target_of_person
from stoplist.records.listing import list_records
from stoplist.records.search import search
from stoplist.rfc3339 import format_ms
from stoplist.secret_key import secret_keys
from stoplist.settings import load
from stoplist.staff.links import use_link
from stoplist.staff.model import SignedIn, StaffStores
from stoplist.staff.people import create_person
from stoplist.staff.roles import set_role
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import MAX_ITEMS, RESUBSCRIBED, Item, OptOutStores, RequestedTarget, SentReason
from stoplist.unsubscribes.submit import submit
from tests.builders import opened

SLUG, CHANNEL = "bench", "email"
ADMINISTRATOR, ORGANIZATION_ADMIN = "ada@people.example", "olga@people.example"
COLLEAGUE = "person-3@people.example"
KNOWN, LONG_HISTORY = "known@known.example", "lively@known.example"
UNUSED_ACTION = "database.restored"
"""An action of the audit that never occurred."""

_DAYS = 60
_OTHERS = tuple(f"company-{number}" for number in range(40))
_COLLEAGUES = tuple(f"person-{number}@people.example" for number in range(40))
_OTHER_FEEDS = tuple(
    (slug, channel) for channel, step in (("email", 1), ("sms", 2), ("phone", 5)) for slug in _OTHERS[::step]
)
_SHOWN_ITEMS, _CHANGED_LATER, _RESUBSCRIBED_ONE_IN = 1_000, 100, 50
_MAX_AUDIT_ENTRIES, _CEILING = 200_000, 1_000_000_000
_REASONS: tuple[SentReason, ...] = ("unsubscribe", "unsubscribe", "bounce", "complaint", "invalid_address", "manual")
_COMMAND = Actor(kind="command", id="bench", may=frozenset((ADMINISTER,)))

_INSERT_AUDIT = """
INSERT INTO audit (audit_id, at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail)
VALUES (?, ?, 'person', ?, '192.0.2.7', ?, ?, ?, '{"label":"Nightly import"}')
"""
_INSERT_CONCERNED = "INSERT INTO audit_organizations (organization_id, at_ms, audit_id) VALUES (?, ?, ?)"


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
    # The key that the server of this data folder will have.
    keys = secret_keys(load({}, env_file=file.with_name("no.env"), flags={"DATA_DIR": str(file.parent)}))
    dataset = asyncio.run(_fill(f"sqlite:///{file}", records, keys))
    with filling(file) as connection:
        _fill_audit(connection, min(records, _MAX_AUDIT_ENTRIES))
    return dataset


async def _fill(url: str, records: int, secret_keys: tuple[str, ...]) -> Dataset:
    async with opened(url) as database:
        keys = await _make_organizations(database)
        tokens = await _make_people(database)
        submission_id, big_submission_id = await _Feeds(database, keys, records).fill()
        await _use_keys(database, keys)
        link_key = await create_link_key(_COMMAND, database, Clock(), secret_keys=secret_keys, org_slug=SLUG)
        groups = await list_groups(_COMMAND, database, org_slug=SLUG)
        newest = await list_records(_COMMAND, database, org_slug=SLUG, channel=CHANNELS[CHANNEL], limit=1)
        return Dataset(
            partner=keys[SLUG],
            tokens=tokens,
            group_id=groups[0].group_id,
            link_key_id=link_key.details.link_key_id,
            import_id=await _begin_import(database),
            submission_id=submission_id,
            big_submission_id=big_submission_id,
            record_seq=await _seq_of(database, KNOWN),
            # Half-way through the feed.
            middle_seq=newest.records[0].seq // 2,
            long_history_seq=await _seq_of(database, LONG_HISTORY),
        )


def _days_ago(days: int) -> Clock:
    """Return a clock that is `days` days and a minute behind, so that all it records is before now."""
    then = Clock()
    then.offset_ms = -days * DAY_MS - 60_000
    return then


async def _make_organizations(database: Database) -> dict[str, Partner]:
    """Create all organizations, each with an additional group; return a key with high ceilings for each slug."""
    then = _days_ago(_DAYS + 1)
    keys: dict[str, Partner] = {}
    for slug in (SLUG, *_OTHERS):
        await create_organization(_COMMAND, database, then, slug=slug, name=f"The {slug} company", default_group="News")
        await create_group(_COMMAND, database, then, org_slug=slug, name="Offers")
        created = await create_credential(
            _COMMAND,
            database,
            then,
            label=f"Nightly import of {slug}",
            organizations=[slug],
            permissions=frozenset(PERMISSIONS),
            token_per_minute=_CEILING,
            api_per_minute=_CEILING,
        )
        keys[slug] = Partner(created.credential.client_id, created.client_secret)
    return keys


async def _make_people(database: Database) -> dict[str, str]:
    """Create colleagues with two roles each, an administrator, and an admin of six organizations.

    Return the session tokens of the last two by e-mail address.
    """
    then = _days_ago(_DAYS)
    for number, email in enumerate(_COLLEAGUES):
        await create_person(_COMMAND, database, then, email=email)
        mine, other = (SLUG if number % 4 == 3 else _OTHERS[number]), _OTHERS[number * 7 % len(_OTHERS)]
        await set_role(_COMMAND, database, then, email=email, org_slug=mine, role=VIEWER)
        await set_role(_COMMAND, database, then, email=email, org_slug=other, role=ADMIN)
    tokens = {email: await _sign_in(database, email) for email in (ADMINISTRATOR, ORGANIZATION_ADMIN)}
    for slug in (SLUG, *_OTHERS[:5]):
        await set_role(_COMMAND, database, then, email=ORGANIZATION_ADMIN, org_slug=slug, role=ADMIN)
    return tokens


async def _sign_in(database: Database, email: str) -> str:
    """Create a person, and return the token of a session."""
    now, person = Clock(), Actor(kind="person", id=email, source_ip="192.0.2.7")
    is_administrator = email == ADMINISTRATOR
    created = await create_person(_COMMAND, database, now, email=email, is_administrator=is_administrator)
    stores, password = StaffStores(database, now, ()), "a pass phrase of nobody"
    entered = await use_link(person, stores, link_token=created.link_token, password=password, user_agent="bench")
    if not isinstance(entered, SignedIn):
        raise BenchError(f"{email} could not be signed in")
    return entered.session_token


async def _use_keys(database: Database, keys: dict[str, Partner]) -> None:
    """Record use of each key on every day, and a few refusals."""
    usage = Usage()
    for days, (number, key) in itertools.product(range(30, -1, -1), enumerate(keys.values())):
        now_ms = _days_ago(days).now_ms()
        for at, code in enumerate([None] * 20 + ["rate_limited"] * (2 if (days + number) % 5 == 0 else 0)):
            request_id = ids.new_request_id()
            usage.note(key.client_id, now_ms=now_ms + at, is_authenticated=True, error=code, request_id=request_id)
    await usage.flush(database)


class _Feeds:
    """Submits the opt-outs of all days."""

    def __init__(self, database: Database, keys: dict[str, Partner], records: int) -> None:
        self._database, self._keys = database, keys
        numbers = People("sms", seed=2)
        self._people = {"email": People("email", seed=1), "sms": numbers, "phone": numbers}
        self._big_items = MAX_ITEMS if records > 5 * MAX_ITEMS else 0
        # All days together, and the submissions that pages show, make the records of the feed.
        self._items_a_day = (records - _SHOWN_ITEMS - self._big_items) // (_DAYS + 1)
        # At least one each, so that the number of daily counts does not depend on the number of records.
        self._others_a_day = max(1, records // 10 // (len(_OTHER_FEEDS) * (_DAYS + 1)))

    async def fill(self) -> tuple[str, str]:
        """Submit everything, oldest day first, and return the ids of the submissions that pages show.

        The second is the biggest possible submission, or empty.
        """
        shown = ("", "")
        yesterday: Sequence[Item] = ()
        for days in range(_DAYS, -1, -1):
            clock = _days_ago(days)
            today = self._items(clock, self._items_a_day)
            await self._submit(clock, today)
            # Some people of the day before change their minds, and one person does so every other day.
            await self._submit(clock, [_resubscription(item, clock) for item in yesterday])
            yesterday = today[::_RESUBSCRIBED_ONE_IN]
            if days % 2 == 0:
                item = _item(LONG_HISTORY, clock)
                await self._submit(clock, [item if days % 4 else _resubscription(item, clock)])
            # All at once, so that they share commits.
            others = [(feed, self._items(clock, self._others_a_day, feed[1], ("manual",))) for feed in _OTHER_FEEDS]
            await asyncio.gather(*(self._submit(clock, items, *feed) for feed, items in others))
            for slug in (SLUG, *_OTHERS[:24:3]) if days == 20 else ():
                await self._submit(clock, [_item(KNOWN, clock)], slug)
            if days == 10:
                shown = await self._submit_shown(clock)
        return shown

    async def _submit_shown(self, clock: Clock) -> tuple[str, str]:
        """Submit the submission that pages show, of which a tenth is sent again and a tenth changed, and a big one."""
        items = self._items(clock, _SHOWN_ITEMS)
        shown = await self._submit(clock, items)
        await self._submit(clock, [_item(item.address, clock) for item in items[:_CHANGED_LATER]])
        await self._submit(clock, [_resubscription(item, clock) for item in items[-_CHANGED_LATER:]])
        return shown, await self._submit(clock, self._items(clock, self._big_items))

    def _items(
        self, clock: Clock, count: int, channel: str = CHANNEL, reasons: Sequence[SentReason] = _REASONS
    ) -> list[Item]:
        """Return opt-outs of new people."""
        sent_ms = clock.now_ms() - 60_000
        return [
            Item(
                address=act.address,
                reason=reasons[number % len(reasons)],
                source="link in the newsletter",
                occurred_at=format_ms(sent_ms - number % MAX_ITEMS * 1_000),
            )
            for number, act in enumerate(self._people[channel].acts(count))
        ]

    async def _submit(self, clock: Clock, items: Sequence[Item], slug: str = SLUG, channel: str = CHANNEL) -> str:
        """Submit the items, and return the id of the last submission; empty if nothing was stored."""
        key = Actor(kind="client", id=self._keys[slug].client_id, may=frozenset(PERMISSIONS), source_ip="192.0.2.9")
        stores, submission_id = OptOutStores(database=self._database, clock=clock, secret_keys=()), ""
        for at in range(0, len(items), MAX_ITEMS):
            part = items[at : at + MAX_ITEMS]
            done = await submit(key, stores, CHANNELS[channel], RequestedTarget(), part, is_minimal=True)
            submission_id = done.submission_id or ""
        return submission_id


def _item(address: str, clock: Clock) -> Item:
    return Item(address=address, occurred_at=format_ms(clock.now_ms() - 30_000))


def _resubscription(item: Item, clock: Clock) -> Item:
    return Item(address=item.address, status=RESUBSCRIBED, source="asked for it", occurred_at=format_ms(clock.now_ms()))


async def _begin_import(database: Database) -> str:
    """Begin an import that pages show; return its id."""
    stores, channel = OptOutStores(database=database, clock=Clock(), secret_keys=()), CHANNELS[CHANNEL]
    target = await find_target_of_person(_COMMAND, database, org_slug=SLUG, group_id=None)
    options, file = ImportOptions(now_ms=Clock().now_ms()), "list.csv"
    begun = await begin_import(_COMMAND, stores, channel, target, all_groups=True, file_name=file, options=options)
    return begun.import_id


async def _seq_of(database: Database, address: str) -> int:
    (found,) = (await search(_COMMAND, database, address)).addresses
    return next(record.seq for record in found.records if record.org_slug == SLUG)


def _fill_audit(connection: sqlite3.Connection, rows: int) -> None:
    """Add `rows` entries on keys and organizations, spread over a year."""
    now_ms = Clock().now_ms()
    ((newest,),) = connection.execute("SELECT max(audit_id) FROM audit")
    organizations = connection.execute("SELECT slug, organization_id FROM organizations ORDER BY 2").fetchall()
    keys = [row[0] for row in connection.execute("SELECT client_id FROM clients ORDER BY created_ms, client_id")]
    actions = [name for name in ACTIONS if name.startswith(("key.", "group.", "organization."))]
    for number in range(rows):
        audit_id, at_ms = newest + 1 + number, now_ms - 365 * DAY_MS + number * 364 * DAY_MS // rows
        slug, organization_id = organizations[number % len(organizations)]
        action = actions[number % len(actions)]
        target = keys[number % len(keys)] if action.startswith("key.") else slug
        who = COLLEAGUE if number % 3 == 0 else _COLLEAGUES[number % len(_COLLEAGUES)]
        connection.execute(_INSERT_AUDIT, (audit_id, at_ms, who, f"req_{number}", action, target))
        if number % 5:
            connection.execute(_INSERT_CONCERNED, (organization_id, at_ms, audit_id))
