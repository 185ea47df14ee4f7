"""Entries of the audit and notices about a feed arrive at the accounts exactly once, whatever ends in between.

Source: docs/interface.md section D1, Feeds apart.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from stoplist.audit import trail
from stoplist.clock import DAY_MS
from stoplist.databases import moving
from stoplist.databases.moving import move_entries
from stoplist.db import Database, Transaction
from stoplist.db.clock import follow_clock
from stoplist.db.query import json_text
from stoplist.db.split import SplitDatabase
from stoplist.errors import StoreUnavailable
from stoplist.notices.outbox import Notice
from stoplist.records.reversal import reverse
from stoplist.rights.erasure_unit import ERASED_ACTION
from stoplist.rights.retention import Retention, delete_old
from tests.builders import ADMINISTRATOR, AuditRow, audit_rows, execute, sql, value
from tests.constants import PATIENCE_S
from tests.deployment import in_loop
from tests.fakes import FakeClock
from tests.records.test_manual_entry import by_hand
from tests.unsubscribes.partner import OptOutDeployment, Organization, addresses, out, records


class ProgramEnds(BaseException):
    """The program ends here."""


def pair(deployment: OptOutDeployment) -> SplitDatabase:
    return cast(SplitDatabase, deployment.database)


async def audited(organization: Organization) -> list[AuditRow]:
    """Return the entries about acts by hand in this organization."""
    rows = await audit_rows(organization.deployment.database)
    return [row for row in rows if row.detail.get("org_slug") == organization.slug and row.action.endswith("by_hand")]


async def waiting(database: Database) -> int:
    """Return how many entries wait in outboxes."""
    return int(await value(database, "SELECT COUNT(*) FROM feed_outbox"))


async def notices_of(database: Database, subject: str) -> int:
    return int(await value(database, "SELECT COUNT(*) FROM notices WHERE subject = :subject", subject=subject))


@in_loop
async def test_an_act_by_hand_is_in_the_audit_at_once(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    entry = await by_hand(organization, "ann@x.org", by=ADMINISTRATOR)
    (row,) = await audited(organization)
    assert (row.action, row.target) == ("unsubscribe.by_hand", entry.submission_id)
    assert (row.at_ms, row.actor) == (deployment.now_ms, "command tester")
    assert (row.source_ip, row.request_id) == (ADMINISTRATOR.source_ip, ADMINISTRATOR.request_id)
    assert await waiting(deployment.database) == 0
    concerned = "SELECT COUNT(*) FROM audit_organizations WHERE organization_id = :organization_id"
    # Its creation, that of its group and of its key, and the act.
    before = await value(deployment.database, concerned, organization_id=organization.organization_id)
    await by_hand(organization, "ben@x.org")
    assert await value(deployment.database, concerned, organization_id=organization.organization_id) == before + 1


@in_loop
async def test_accounts_that_are_away_delay_the_entry_and_not_the_act(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization = await deployment.new_organization()
    database = pair(deployment)

    with monkeypatch.context() as patch:
        patch.setattr(database.accounts, "write", AsyncMock(side_effect=StoreUnavailable("away")))
        await by_hand(organization, "ann@x.org")
    assert addresses(await organization.follow()) == ["ann@x.org"]
    assert await audited(organization) == []
    assert await waiting(database) == 1
    await move_entries(database)
    assert len(await audited(organization)) == 1
    assert await waiting(database) == 0


@in_loop
async def test_accounts_that_hang_delay_the_entry_and_not_the_answer(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization, database = await deployment.new_organization(), pair(deployment)

    async def hang(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(moving, "WAIT_S", 0.01)
        patch.setattr(database.accounts, "write", hang)
        async with asyncio.timeout(PATIENCE_S):
            await by_hand(organization, "ann@x.org")
    assert addresses(await organization.follow()) == ["ann@x.org"]
    assert await waiting(database) == 1
    await move_entries(database)
    assert len(await audited(organization)) == 1


ENDS: dict[str, Callable[[SplitDatabase, pytest.MonkeyPatch], None]] = {}
"""The moments between the two databases at which a program may end, each as what makes it end there."""


def moment(end: Callable[[SplitDatabase, pytest.MonkeyPatch], None]) -> Callable[..., None]:
    ENDS[end.__name__] = end
    return end


def ending(work: Callable[..., Coroutine[Any, Any, Any]], *, does_it: bool) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def end(*values: Any, **named: Any) -> None:
        if does_it:
            await work(*values, **named)
        raise ProgramEnds

    return end


@moment
def before_the_accounts_are_asked(database: SplitDatabase, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database.accounts, "write", ending(database.accounts.write, does_it=False))


@moment
def once_the_accounts_have_it(database: SplitDatabase, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database.accounts, "write", ending(database.accounts.write, does_it=True))


@moment
def before_the_outbox_forgets_it(database: SplitDatabase, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database.feeds, "write_one", ending(database.feeds.write_one, does_it=False))


@moment
def once_the_outbox_has_forgotten_it(database: SplitDatabase, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database.feeds, "write_one", ending(database.feeds.write_one, does_it=True))


@pytest.mark.parametrize("end", ENDS)
@in_loop
async def test_an_end_at_any_moment_neither_loses_nor_doubles_an_entry(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A reversal has two: one of the audit, and a notice."""
    organization, database = await deployment.new_organization(), pair(deployment)
    mistake = await organization.submit(out("ann@x.org"))
    assert mistake.submission_id is not None
    with monkeypatch.context() as patch:
        ENDS[end](database, patch)
        with pytest.raises(ProgramEnds):
            await reverse(ADMINISTRATOR, deployment.stores, mistake.submission_id)
    (record,) = records(await organization.look_up("ann@x.org"))
    assert record.reason == "correction"
    await move_entries(database)
    await move_entries(database)
    (row,) = [row for row in await audit_rows(database) if row.target == mistake.submission_id]
    assert row.action == "submission.reverse"
    assert await notices_of(database, mistake.submission_id) == 1
    assert await waiting(database) == 0


@in_loop
async def test_two_programs_that_move_the_same_entries_leave_each_once(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read them before either writes."""
    organization, database = await deployment.new_organization(), pair(deployment)
    with monkeypatch.context() as patch:
        patch.setattr(database, "on_entries", _leave)
        for name in ("ann", "ben", "cleo"):
            await by_hand(organization, f"{name}@x.org")
    assert await waiting(database) == 3
    await asyncio.gather(*(move_entries(database) for _ in range(4)))
    assert len(await audited(organization)) == 3
    assert await waiting(database) == 0


def entry(at_ms: int, action: str) -> trail.Entry:
    return trail.Entry(at_ms, "command", "a", None, None, action, "restored", "{}", [])


@pytest.mark.parametrize(
    ("kind", "content", "at_ms", "is_kept"),
    [
        ("audit", entry(1, "unsubscribe.by_hand"), 1, False),
        ("audit", entry(2, ERASED_ACTION), 2, True),
        ("notice", Notice("ntc_a", "import.done", "a", "{}", 3, []), 3, True),
    ],
    ids=["old", "erasure", "notice"],
)
@in_loop
async def test_an_entry_that_a_restore_brings_back_is_there_once(
    deployment: OptOutDeployment, kind: str, content: object, at_ms: int, is_kept: bool
) -> None:
    """Its id goes with it, so that the ids do not grow for ever."""
    database = pair(deployment)
    insert = "INSERT INTO feed_outbox VALUES (17, :entry_id, :kind, :body, :at_ms)"
    times = {"audit": "SELECT COUNT(*) FROM audit WHERE at_ms = :at_ms"}
    times["notice"] = "SELECT COUNT(*) FROM notices WHERE created_ms = :at_ms"

    async def bring_back() -> None:
        values = {"entry_id": f"restored {at_ms}", "kind": kind, "body": json_text(content), "at_ms": at_ms}
        await execute(database.feeds, insert, **values)
        await move_entries(database)
        assert await value(database, times[kind], at_ms=at_ms) == 1

    await bring_back()
    await bring_back()
    async for _ in delete_old(database, Retention(audit_days=1), 2 * DAY_MS):
        pass
    assert await value(database, "SELECT COUNT(*) FROM moved_entries WHERE added_ms = :at_ms", at_ms=at_ms) == is_kept
    await bring_back()


UNREADABLE = {"damaged": ("audit", "{"), "of_newer": ("audit", '{"at": 1}'), "of_another_kind": ("later", "{}")}


@in_loop
async def test_entries_that_cannot_be_read_hold_up_no_other(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They stay, and are logged once, not every few seconds."""
    organization, database = await deployment.new_organization(), pair(deployment)
    monkeypatch.setattr(moving, "ENTRIES_AT_ONCE", 1)
    with monkeypatch.context() as patch:
        patch.setattr(database, "on_entries", _leave)
        await by_hand(organization, "ann@x.org")
    for entry_id, (kind, body) in UNREADABLE.items():
        await execute(
            database.feeds,
            "INSERT INTO feed_outbox VALUES (:feed_id, :entry_id, :kind, :body, 0)",
            feed_id=organization.feed_id,
            entry_id=entry_id,
            kind=kind,
            body=body,
        )
    try:
        await move_entries(database)
        assert len(await audited(organization)) == 1
        await by_hand(organization, "ben@x.org")
        assert len(await audited(organization)) == 2
        await move_entries(database)
        assert await waiting(database) == len(UNREADABLE)
    finally:
        await execute(database.feeds, "DELETE FROM feed_outbox WHERE feed_id = :feed_id", feed_id=organization.feed_id)
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert line.fields == {"entries": sorted(UNREADABLE)}  # type: ignore[attr-defined]


@in_loop
async def test_a_change_that_is_undone_leaves_no_entry(deployment: OptOutDeployment) -> None:
    organization, database = await deployment.new_organization(), pair(deployment)

    async def unit(transaction: Transaction) -> None:
        await trail.record(transaction, ADMINISTRATOR, "person.erase", "x", at_ms=1, organizations=(organization.slug,))
        raise StoreUnavailable("It fails.")

    with pytest.raises(StoreUnavailable):
        await database.write(unit, queue_key=organization.feed_id)
    await move_entries(database)
    assert [row for row in await audit_rows(database) if row.target == "x"] == []


@in_loop
async def test_the_clock_is_that_of_the_accounts_whatever_the_feeds_do(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, clock = pair(deployment), FakeClock()

    monkeypatch.setattr(
        database.feeds, "clock_ms", AsyncMock(side_effect=StoreUnavailable("The database has become a standby."))
    )
    with pytest.raises(StoreUnavailable, match="standby"):  # which the log of the chore says
        await follow_clock(clock, database)
    assert clock.offset_ms != 0


OF_FEEDS, OF_ACCOUNTS = sql("SELECT seq FROM unsubscribes WHERE feed_id = :feed_id"), sql("SELECT 1 AS one FROM audit")


@pytest.mark.parametrize(("feed_id", "query"), [(None, OF_FEEDS), (17, OF_ACCOUNTS)], ids=["feeds", "accounts"])
@pytest.mark.parametrize("method", ["one", "all", "run"])
@in_loop
async def test_a_transaction_refuses_the_tables_of_the_other_database(
    deployment: OptOutDeployment, feed_id: int | None, query: Any, method: str
) -> None:
    """They exist there, empty: what is written to them would be lost, and what is read from them is wrong."""
    values = {"feed_id": 17} if query is OF_FEEDS else {}
    with pytest.raises(RuntimeError, match="about feeds"):
        await deployment.database.write(
            lambda transaction: getattr(transaction, method)(query, **values), feed_id=feed_id
        )


async def _leave(_feed_id: int) -> None:
    pass
