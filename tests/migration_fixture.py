"""A deployment to be moved: a SQLite file in which every table holds something, and what becomes of it."""

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from stoplist.db import Database, schema
from stoplist.db.opening import sqlite_path
from stoplist.errors import Refused
from stoplist.maintenance.copy.copy import Copied, Report, Step, copy_deployment
from stoplist.oauth.authentication import find_client
from stoplist.oauth.tokens import issue_pair, rotate_pair
from stoplist.oauth.usage import Usage
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.records.reversal import reverse
from stoplist.staff.people import set_role
from tests.builders import ADMINISTRATOR, make_key, make_organization, migrated, opened
from tests.fakes import FakeClock
from tests.staff.staff_fixture import StaffFixture
from tests.unsubscribes.partner import Organization, Place, back, out

LONG_AGO = "2001-09-09T01:46:40Z"
ADDRESSES = tuple(f"person-{number}@example.org" for number in range(40))
OWN = ("deployment", "copy_progress")
"""What each database has for itself."""


class HandedOut(NamedTuple):
    """What partners hold."""

    access_token: str
    refresh_token: str
    used_refresh_token: str
    client_id: str
    client_secret: str
    cursor: str
    organization: Organization


async def live_in(database: Database, clock: FakeClock) -> HandedOut:
    """Everything that can happen to a deployment has happened, so that every table holds something."""
    place = Place(database, clock)
    organization = await place.new_organization()
    reminders = await organization.new_group("Erinnerungen für Jürgen; 7:x")
    await organization.submit(*(out(address, source="a link") for address in ADDRESSES[:10]))
    page = await organization.follow()
    clock.advance(60)
    await organization.submit(*map(out, ADDRESSES), by=await organization.new_partner())
    await organization.submit(*(back(address, place.ago(1)) for address in ADDRESSES[:3]), group_id=reminders)
    clock.advance(60)
    await organization.submit(back(ADDRESSES[0], place.ago(0)), out("jürgen@例え.example", LONG_AGO, source="💌\t;1:"))
    await organization.on("sms").submit(out("+12025550123"), all_groups=True)
    mistake = await organization.on("sms").submit(out("+12025550124"))
    await reverse(ADMINISTRATOR, place.stores, mistake.submission_id or "")
    await retire_group(ADMINISTRATOR, database, clock, group_id=reminders)
    await make_organization(database, clock, "closed")
    await close_organization(ADMINISTRATOR, database, clock, slug="closed")
    key = await make_key(database, clock, organization.slug, label="a: b; c")
    await _used(database, clock, key.credential.client_id)
    await _staffed(database, clock, organization.slug)
    client = await find_client(database, key.credential.client_id)
    assert client is not None
    first = await issue_pair(database, clock, client)
    assert first is not None
    second = await rotate_pair(database, clock, first.refresh_token)
    assert second is not None
    return HandedOut(
        second.access_token,
        second.refresh_token,
        first.refresh_token,
        key.credential.client_id,
        key.client_secret,
        page.next_cursor or "",
        organization,
    )


async def _staffed(database: Database, clock: FakeClock, org_slug: str) -> None:
    staff = StaffFixture(database, clock)
    ann = await staff.create("ann@example.org")
    await set_role(ADMINISTRATOR, database, clock, email=ann.id, org_slug=org_slug, role="admin")
    await staff.set_up_app(ann)
    await staff.invite("bob@example.org", is_administrator=True)
    with suppress(Refused):
        await staff.sign_in("nobody@example.org")


async def _used(database: Database, clock: FakeClock, client_id: str) -> None:
    usage = Usage()
    usage.note(client_id, now_ms=clock.now_ms(), is_authenticated=True, error=None, request_id="0" * 24)
    usage.note(client_id, now_ms=clock.now_ms(), is_authenticated=False, error="invalid_client", request_id="1" * 24)
    await usage.flush(database)


class Move(NamedTuple):
    """A lived-in deployment, and an empty target."""

    source_url: str
    target_url: str
    clock: FakeClock
    handed_out: HandedOut

    @property
    def path(self) -> Path:
        path = sqlite_path(self.source_url)
        assert path is not None
        return path

    def copy(self, *, report: Report = lambda _: None, chunk_rows: int = 7, actor: Any = ADMINISTRATOR) -> Copied:
        """What the operation returns."""
        return asyncio.run(
            copy_deployment(
                actor,
                FakeClock(),
                source_url=self.source_url,
                target_url=self.target_url,
                report=report,
                chunk_rows=chunk_rows,
            )
        )

    def interrupted(self, *, chunk_rows: int = 7, after: int = 8) -> None:
        """A copy is begun, and ends when it has told of this many steps."""
        try:
            self.copy(report=ends_after(after), chunk_rows=chunk_rows)
        except Interrupted:
            return
        raise AssertionError("it was not interrupted")

    def change(self, *statements: str) -> None:
        """Change the source, as a program would that does not know of any copy."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def change_target(self, *statements: str) -> None:
        """The same with the target."""
        asyncio.run(executed(self.target_url, *statements))

    def source(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table of the source."""
        with closing(sqlite3.connect(self.path)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                name: _sorted(connection.execute(f"SELECT * FROM {name}"))  # noqa: S608
                for name in names
                if name not in OWN
            }

    def target(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table of the target."""
        return asyncio.run(_rows(self.target_url))

    def target_is_served(self) -> bool:
        """Whether a server or a command would work on the target."""

        async def checked() -> bool:
            async with opened(self.target_url, pool_size=2) as database:
                known = await schema.read(database)
                assert known is not None
                return not known.is_incomplete

        return asyncio.run(checked())


class Interrupted(Exception):
    """What ends a copy at a moment that a test chooses."""


def ends_after(steps: int) -> Report:
    """A report that lets a copy go on for so many steps."""
    seen: Iterator[int] = iter(range(1, steps))

    def report(_: Step) -> None:
        if next(seen, None) is None:
            raise Interrupted

    return report


def make_move(source_url: str, target_url: str) -> Move:
    """A source that was lived in, and a target as `stoplist migrate` makes it."""

    async def made() -> Move:
        clock = FakeClock()
        async with migrated(source_url) as database:
            handed_out = await live_in(database, clock)
        async with migrated(target_url, pool_size=2):
            pass
        return Move(source_url, target_url, clock, handed_out)

    return asyncio.run(made())


async def executed(url: str, *statements: str) -> list[Any]:
    """What the last of these statements returns."""
    connection = await asyncpg.connect(url)
    try:
        return [await connection.fetch(statement) for statement in statements][-1]
    finally:
        await connection.close()


async def _rows(url: str) -> dict[str, list[tuple[Any, ...]]]:
    connection = await asyncpg.connect(url)
    try:
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {
            name: _sorted(map(tuple, await connection.fetch(f"SELECT * FROM {name}")))  # noqa: S608
            for (name,) in names
            if name not in OWN
        }
    finally:
        await connection.close()


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)
