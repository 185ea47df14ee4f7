"""A deployment to copy: a SQLite file with rows in every table, and an empty PostgreSQL target."""

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from stoplist.db import Database, Transaction, schema
from stoplist.db.opening import sqlite_path
from stoplist.errors import Refused
from stoplist.links.keys import create_link_key
from stoplist.maintenance.copy.copy import CopyResult, Report, Step, copy_deployment
from stoplist.notices.model import KEY_BEHIND
from stoplist.notices.outbox import state_changed
from stoplist.oauth.authentication import find_client
from stoplist.oauth.tokens import issue_pair
from stoplist.oauth.usage import Usage
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization, set_link_page
from stoplist.proof.positions import Positions
from stoplist.records.reversal import reverse
from stoplist.rights.reads import note_read
from stoplist.staff.roles import set_role
from stoplist.unsubscribes.feed import find_feed_by_id
from tests.builders import (
    ADMINISTRATOR,
    Apart,
    execute,
    make_key,
    make_organization,
    migrated,
    on_database,
    rotate_token,
)
from tests.fakes import FakeClock
from tests.lists.imports.importer import Importer, list_of
from tests.lists.uploads.uploader import Uploader
from tests.rights.eraser import erase
from tests.services.postgresql import on_connection, run_statements
from tests.staff.staff_fixture import StaffDeployment
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out

LONG_AGO = "2001-09-09T01:46:40Z"
ADDRESSES = tuple(f"person-{number}@example.org" for number in range(40))
NOT_COPIED = ("deployment", "copy_progress")
"""The tables that each database keeps for itself."""


class Issued(NamedTuple):
    """The credentials and the cursor that a partner holds."""

    access_token: str
    refresh_token: str
    used_refresh_token: str
    client_id: str
    client_secret: str
    cursor: str
    organization: Organization


async def fill_every_table(database: Database, clock: FakeClock) -> Issued:
    """Use the deployment in every way, so that every table has rows."""
    deployment = OptOutDeployment(database, clock)
    organization = await deployment.new_organization()
    reminders = await organization.new_group("Erinnerungen für Jürgen; 7:x")
    await organization.submit(*(out(address, source="a link") for address in ADDRESSES[:10]))
    page = await organization.follow()
    clock.advance(60)
    await organization.submit(*map(out, ADDRESSES), by=await organization.new_partner())
    await organization.submit(*(back(address, deployment.ago(1)) for address in ADDRESSES[:3]), group_id=reminders)
    clock.advance(60)
    await organization.submit(
        back(ADDRESSES[0], deployment.ago(0)), out("jürgen@例え.example", LONG_AGO, source="💌\t;1:")
    )
    await organization.on("sms").submit(out("+12025550123"), all_groups=True)
    mistake = await organization.on("sms").submit(out("+12025550124"))
    await reverse(ADMINISTRATOR, deployment.stores, mistake.submission_id or "")
    for _ in range(2):  # the second import confirms what the first one stored
        await Importer(organization).take(list_of([("imported@example.org", clock.now_ms() - 1)]))
    await Uploader(organization).take(list_of([("sent@example.org", clock.now_ms()), ("bad", 1)]))
    await Uploader(organization).upload(b"address\nwaiting@example.org\n")
    await _add_positions(database, clock, organization)
    await organization.on("phone").submit(out("+12025550125"))
    await erase(organization.on("phone"), "+12025550125")
    await note_read(ADMINISTRATOR, deployment.stores, ADDRESSES[0], organizations=(organization.slug,))
    await retire_group(ADMINISTRATOR, database, clock, group_id=reminders)
    await make_organization(database, clock, "closed")
    await close_organization(ADMINISTRATOR, database, clock, slug="closed")
    key = await make_key(database, clock, organization.slug, label="a: b; c")
    await create_link_key(ADMINISTRATOR, database, clock, secret_keys=("k" * 32,), org_slug=organization.slug)
    await set_link_page(
        ADMINISTRATOR, database, clock, slug=organization.slug, contact_line="Grüße: a; b", accent_colour="#0a66c2"
    )
    await _add_notices(database, clock)
    await _add_usage(database, clock, key.credential.client_id)
    await _add_staff(database, clock, organization.slug)
    await execute(
        database,
        "INSERT INTO feed_outbox (feed_id, entry_id, kind, body, added_ms) VALUES (:feed_id, 'a', 'audit', '{}', 1)",
        feed_id=organization.feed_id,
    )
    await execute(database, "INSERT INTO moved_entries (entry_id, added_ms) VALUES ('b', 1)")
    client = await find_client(database, key.credential.client_id)
    assert client is not None
    first = await issue_pair(database, clock, client)
    assert first is not None
    second = await rotate_token(database, clock, first.refresh_token)
    assert second is not None
    return Issued(
        second.access_token,
        second.refresh_token,
        first.refresh_token,
        key.credential.client_id,
        key.client_secret,
        page.next_cursor or "",
        organization,
    )


async def _add_staff(database: Database, clock: FakeClock, org_slug: str) -> None:
    staff = StaffDeployment(database, clock)
    ann = await staff.create("ann@example.org")
    await set_role(ADMINISTRATOR, database, clock, email=ann.id, org_slug=org_slug, role="admin")
    await staff.set_up_app(ann)
    await staff.ticket(ann.id)
    await staff.offer(await staff.actor(ann.id), "cleo@example.org", org_slug)
    await staff.invite("bob@example.org", is_administrator=True)
    with suppress(Refused):
        await staff.sign_in("nobody@example.org")


async def _add_notices(database: Database, clock: FakeClock) -> None:
    async def change(transaction: Transaction) -> None:
        await state_changed(
            transaction, KEY_BEHIND, "svc_ci_1", "behind", normal="in_time", at_ms=clock.now_ms(), client_id="svc_ci_1"
        )

    await database.write(change)


async def _add_positions(database: Database, clock: FakeClock, organization: Organization) -> None:
    feed = await find_feed_by_id(database, organization.feed_id)
    assert feed is not None
    positions = Positions()
    positions.note(feed, (organization.partner.id, 0), feed.head_seq, now_ms=clock.now_ms())
    await positions.flush(database)


async def _add_usage(database: Database, clock: FakeClock, client_id: str) -> None:
    usage = Usage()
    usage.note(client_id, now_ms=clock.now_ms(), is_authenticated=True, error=None, request_id="0" * 24)
    usage.note(client_id, now_ms=clock.now_ms(), is_authenticated=False, error="invalid_client", request_id="1" * 24)
    await usage.flush(database)


class Move(NamedTuple):
    """A filled source and an empty target. With `feeds_url` it is a pair, and `target_url` that of the accounts."""

    source_url: str
    target_url: str
    clock: FakeClock
    issued: Issued
    feeds_url: str | None = None

    @property
    def path(self) -> Path:
        path = sqlite_path(self.source_url)
        assert path is not None
        return path

    def copy(self, *, report: Report = lambda _: None, chunk_rows: int = 7, actor: Any = ADMINISTRATOR) -> CopyResult:
        """Run the copy, in small chunks."""
        return asyncio.run(
            copy_deployment(
                actor,
                FakeClock(),
                source_url=self.source_url,
                target_url=self.target_url,
                feeds_url=self.feeds_url,
                report=report,
                chunk_rows=chunk_rows,
            )
        )

    def interrupt(self, *, after: int = 8) -> None:
        """Begin a copy and end it after this many steps."""
        try:
            self.copy(report=interrupt_after(after))
        except Interrupted:
            return
        raise AssertionError("the copy was not interrupted")

    def change_source(self, *statements: str) -> None:
        """Execute statements in the source, as a program would that does not know of the copy."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def change_target(self, *statements: str) -> None:
        """Execute statements in the target."""
        run_statements(self.target_url, *statements)

    def source_rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of the source by table."""
        with closing(sqlite3.connect(self.path)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                name: _sorted(connection.execute(f"SELECT * FROM {name}"))  # noqa: S608
                for name in names
                if name not in NOT_COPIED
            }

    def target_rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of the target by table."""
        return rows_of(self.target_url)

    def is_target_usable(self) -> bool:
        """Return whether a server or a command would use the target."""
        deployment = on_database(self.target_url, schema.read)
        assert deployment is not None
        return not deployment.is_incomplete


def assert_copied(move: Move) -> None:
    """Assert that the target has every row of the source, plus one audit row, and is usable."""
    target = move.target_rows()
    arrived = max(target["audit"])
    assert arrived[6:8] == ("database.copied", "database")
    target["audit"].remove(arrived)
    assert target == move.source_rows()
    assert move.is_target_usable()


class Interrupted(Exception):
    """Ends a copy at a moment that a test chooses."""


def interrupt_after(steps: int) -> Report:
    """Return a report function that ends a copy after so many steps."""
    seen: Iterator[int] = iter(range(1, steps))

    def report(_: Step) -> None:
        if next(seen, None) is None:
            raise Interrupted

    return report


def make_move(source_url: str, target_url: str) -> Move:
    """Create a filled source, and a target as `stoplist migrate` creates it."""

    async def make() -> Move:
        clock = FakeClock()
        async with migrated(source_url) as database:
            issued = await fill_every_table(database, clock)
        async with migrated(target_url, pool_size=2):
            pass
        feeds_url = target_url.feeds if isinstance(target_url, Apart) else None
        return Move(source_url, str(target_url), clock, issued, feeds_url)

    return asyncio.run(make())


def rows_of(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of a PostgreSQL database by table, except those that each database has for itself."""

    async def read(connection: asyncpg.Connection) -> dict[str, list[tuple[Any, ...]]]:
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {
            name: _sorted(map(tuple, await connection.fetch(f"SELECT * FROM {name}")))  # noqa: S608
            for (name,) in names
            if name not in NOT_COPIED
        }

    return on_connection(url, read)


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)
