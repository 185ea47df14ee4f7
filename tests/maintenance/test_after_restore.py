"""After a restore, no earlier cursor, token, session or link is valid. Source: docs/interface.md section D1."""

from unittest.mock import AsyncMock

import pytest

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database
from stoplist.db.split import SplitDatabase
from stoplist.maintenance.after_restore import RestoreResult, after_restore
from stoplist.oauth.credentials import deactivate_credential
from stoplist.staff.links import person_of_link
from stoplist.staff.tickets import account_of_ticket
from tests.builders import (
    ADMINISTRATOR,
    STRANGER,
    audit_rows,
    contents,
    find_bearer,
    make_key,
    make_organization,
    make_token,
    on_each_database,
    refused,
    sql,
)
from tests.fakes import FakeClock
from tests.notices.operator import NoticeDeployment
from tests.staff.staff_fixture import StaffDeployment
from tests.unsubscribes.partner import OptOutDeployment, Organization, out

GENERATIONS = sql("SELECT feed_id, generation, head_seq, writes FROM feeds ORDER BY feed_id")


async def feeds_in_use(deployment: OptOutDeployment) -> Organization:
    """Return an organization with two feeds that hold records."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    await organization.on("sms").submit(out("+12025550123"))
    return organization


@on_each_database
async def test_every_feed_gets_a_new_generation_and_keeps_its_rows(database: Database, clock: FakeClock) -> None:
    """The operation may be repeated, and gives a new generation each time."""
    deployment = OptOutDeployment(database, clock)
    await feeds_in_use(deployment)
    tables = ("unsubscribes", "unsubscribe_versions", "submissions", "feed_days", "organizations", "groups")
    before = await contents(database, *tables)
    versions = [list(map(tuple, await database.all(GENERATIONS)))]
    for _ in range(2):
        result = await after_restore(ADMINISTRATOR, database, clock)
        assert result == RestoreResult(feeds=2, credentials=1)
        versions.append(list(map(tuple, await database.all(GENERATIONS))))
    generations = [generation for rows in versions for _, generation, _, _ in rows]
    assert len(set(generations)) == 6
    assert {tuple((row[0], row[2], row[3]) for row in rows) for rows in versions} == {
        tuple((row[0], row[2], row[3]) for row in versions[0])
    }
    assert await contents(database, *tables) == before


@on_each_database
async def test_every_token_of_every_key_is_revoked(database: Database, clock: FakeClock) -> None:
    """This includes those of inactive keys, which stay inactive. New tokens are valid."""
    await make_organization(database, clock)
    keys = [await make_key(database, clock) for _ in range(3)]
    pairs = [await make_token(database, clock, key) for key in keys]
    inactive = keys[2].credential.client_id
    await deactivate_credential(ADMINISTRATOR, database, clock, client_id=inactive)
    assert (await after_restore(ADMINISTRATOR, database, clock)).credentials == 3
    assert [await find_bearer(database, clock, pair.access_token) for pair in pairs] == [None] * 3
    renewed = await make_token(database, clock, keys[0])
    assert await find_bearer(database, clock, renewed.access_token) is not None
    active = await database.all(sql("SELECT is_active FROM clients ORDER BY client_id"))
    assert sorted(row["is_active"] for row in active) == [0, 1, 1]


@on_each_database
async def test_the_audit_says_who_restored_when_and_how_much(database: Database, clock: FakeClock) -> None:
    deployment = OptOutDeployment(database, clock)
    await feeds_in_use(deployment)
    clock.advance(5)
    await after_restore(ADMINISTRATOR, database, clock)
    rows = [row for row in await audit_rows(database) if row.action == "database.restored"]
    assert {(row.at_ms, row.actor, row.target) for row in rows} == {(clock.now_ms(), "command tester", "database")}
    # One entry for each database.
    assert len(rows) == (2 if isinstance(database, SplitDatabase) else 1)
    assert {name: count for row in rows for name, count in row.detail.items()} == {"feeds": 2, "credentials": 1}


@on_each_database
async def test_only_an_administrator_may_run_it(database: Database, clock: FakeClock) -> None:
    """It makes every partner read everything again."""
    await feeds_in_use(OptOutDeployment(database, clock))
    before = await contents(database, "feeds", "clients")
    partner = Actor(kind="client", id="svc_ci_x", may=frozenset(("read", "unsubscribe", "resubscribe")))
    for actor in (STRANGER, partner):
        await refused(database, after_restore(actor, database, clock), "administrator")
    assert await contents(database, "feeds", "clients") == before


@on_each_database
async def test_it_happens_completely_or_not_at_all(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New generations without revoked tokens, or the reverse, would be worse than either."""
    await feeds_in_use(OptOutDeployment(database, clock))
    before = await contents(database, "feeds", "clients", "audit")

    monkeypatch.setattr(trail, "record", AsyncMock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        await after_restore(ADMINISTRATOR, database, clock)
    assert await contents(database, "feeds", "clients", "audit") == before


@on_each_database
async def test_sessions_and_links_are_invalid_afterwards(database: Database) -> None:
    """Otherwise sessions ended since the backup and links used since would be valid again."""
    staff = StaffDeployment(database)
    await staff.create("ann@example.org")
    session_token = await staff.session("ann@example.org")
    invited = await staff.invite("bob@example.org")
    await staff.set_up_app(await staff.actor("ann@example.org"))
    ticket = await staff.ticket("ann@example.org")
    await after_restore(ADMINISTRATOR, database, staff.clock)
    assert not await staff.is_alive(session_token)
    assert await person_of_link(database, staff.clock, invited.link_token) is None
    assert await account_of_ticket(database, ticket, staff.clock.now_ms()) is None
    assert await staff.ticket("ann@example.org")


@on_each_database
async def test_no_notice_from_before_is_delivered(database: Database, clock: FakeClock) -> None:
    """It may have arrived since the backup."""
    notices = NoticeDeployment(database, clock)
    await notices.person("ann@example.org", is_administrator=True)
    await notices.add()
    await after_restore(ADMINISTRATOR, database, clock)
    assert [(one["ended_ms"], one["is_delivered"]) for one in await notices.deliveries()] == [(clock.now_ms(), 0)] * 2
