"""Sessions expire, and are ended by their person and by administrators; always at once."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from stoplist import ids
from stoplist.db import Database
from stoplist.errors import Forbidden, Missing, StoreUnavailable
from stoplist.staff import sessions
from stoplist.staff.sessions import find_session
from tests.builders import audit_rows, execute, value
from tests.constants import HOUR_S
from tests.staff.staff_fixture import BROWSER, HERE, StaffDeployment, with_staff


@with_staff
async def test_a_session_ends_after_twelve_hours_without_use(staff: StaffDeployment) -> None:
    """Exact to a minute. Source: docs/interface.md section D11."""
    await staff.create("ann@example.org")
    token = await staff.session("ann@example.org")
    for _ in range(5):
        staff.clock.advance(43_199.999)
        assert await staff.is_alive(token)
    staff.clock.advance(43_200)
    assert not await staff.is_alive(token)


@with_staff
async def test_a_session_ends_after_seven_days_of_use(staff: StaffDeployment) -> None:
    await staff.create("ann@example.org")
    token = await staff.session("ann@example.org")
    for _ in range(7 * 24 - 1):
        staff.clock.advance(HOUR_S)
        assert await staff.is_alive(token)
    staff.clock.advance(3599.999)
    assert await staff.is_alive(token)
    staff.clock.advance(0.001)
    assert not await staff.is_alive(token)


@with_staff
async def test_a_session_is_found_with_its_person(staff: StaffDeployment) -> None:
    await staff.organization()
    await staff.create("ann@example.org", acme="viewer")
    found = await find_session(staff.database, staff.clock, await staff.session("ann@example.org"))
    assert found is not None
    assert found.person == await staff.person("ann@example.org")
    assert found.session_id.startswith(ids.SESSION_ID)


@with_staff
async def test_an_invalid_token_has_no_session(staff: StaffDeployment) -> None:
    """Malformed tokens, unknown ones and those of another kind. Only unknown ones are looked up."""
    await staff.create("ann@example.org")
    token = await staff.session("ann@example.org")
    no_database: Any = None
    wrong_kind = ids.new_secret(ids.ACCESS_TOKEN)
    for text in ("", "x", token[:-1], token + "x", token.swapcase(), wrong_kind, "\0", "ü" * 56, "\ud800"):
        assert await find_session(no_database, staff.clock, text) is None
        await sessions.sign_out(no_database, text)
    assert await find_session(staff.database, staff.clock, ids.new_secret(ids.SESSION)) is None
    assert await staff.is_alive(token)


@with_staff
async def test_a_disabled_person_has_no_session(staff: StaffDeployment) -> None:
    """The account may have been disabled without ending the session."""
    await staff.create("ann@example.org")
    token = await staff.session("ann@example.org")
    await execute(staff.database, "UPDATE people SET is_disabled = 1")
    assert not await staff.is_alive(token)


@with_staff
async def test_the_time_of_use_is_written_once_a_minute(staff: StaffDeployment) -> None:
    """It is not written for each page."""
    await staff.create("ann@example.org")
    token = await staff.session("ann@example.org")

    async def writes(after_s: float) -> int:
        staff.clock.advance(after_s)
        before = staff.database.counts.commits
        assert await staff.is_alive(token)
        return staff.database.counts.commits - before

    assert [await writes(seconds) for seconds in (0, 59.999, 0.001, 1, 58.998, 0.001, 0.001)] == [0, 0, 1, 0, 0, 0, 1]


@with_staff
async def test_a_session_is_found_while_nothing_can_be_written(staff: StaffDeployment) -> None:
    """Failing to note the time of use is no reason to refuse a request."""
    await staff.create("ann@example.org")
    token = await staff.session("ann@example.org")
    staff.clock.advance(HOUR_S)
    assert await find_session(_read_only(staff.database), staff.clock, token) is not None


@with_staff
async def test_people_list_and_end_their_own_sessions(staff: StaffDeployment) -> None:
    """Last used first, with the current one marked, the source address and the browser."""
    ann = await staff.create("ann@example.org")
    await sessions.end_other_sessions(ann, staff.database, staff.clock, keep_session_id="")
    tokens, found = [], []
    for _ in range(3):
        staff.clock.advance(60)
        tokens.append(await staff.session(ann.id))
        found.append(await find_session(staff.database, staff.clock, tokens[-1]))
    current = found[1]
    assert current is not None
    shown = await sessions.list_sessions(
        ann, staff.database, staff.clock, email=ann.id, current_session_id=current.session_id
    )
    assert [one.is_current for one in shown] == [False, True, False]
    assert [one.seen_ms for one in shown] == [staff.clock.now_ms() - ago_ms for ago_ms in (0, 60_000, 120_000)]
    assert {(one.source_ip, one.user_agent) for one in shown} == {(HERE, BROWSER)}
    await sessions.end_session(ann, staff.database, staff.clock, session_id=shown[0].session_id)
    assert [await staff.is_alive(token) for token in tokens] == [True, True, False]
    ended = await sessions.end_other_sessions(ann, staff.database, staff.clock, keep_session_id=current.session_id)
    assert ended == 1
    assert [await staff.is_alive(token) for token in tokens] == [False, True, False]
    await sessions.sign_out(staff.database, tokens[1])
    assert not await staff.is_alive(tokens[1])
    rows = [row for row in await audit_rows(staff.database) if row.action == "session.end"]
    assert [(row.actor, row.target) for row in rows[1:]] == [("person ann@example.org", ann.id)] * 2


@with_staff
async def test_expired_sessions_are_not_listed(staff: StaffDeployment) -> None:
    """They may not have been deleted yet."""
    ann = await staff.create("ann@example.org")
    staff.clock.advance(43_200)
    assert await sessions.list_sessions(ann, staff.database, staff.clock, email=ann.id) == []


@with_staff
async def test_only_administrators_list_and_end_others_sessions(staff: StaffDeployment) -> None:
    """An organization's admin finds a session of somebody else as one that does not exist."""
    await staff.organization()
    ann = await staff.create("ann@example.org", acme="viewer")
    admin = await staff.create("admin@example.org", acme="admin")
    boss = await staff.administrator()
    token = await staff.session(ann.id)
    (session, _) = await sessions.list_sessions(boss, staff.database, staff.clock, email="Ann@example.org")
    with pytest.raises(Forbidden):
        await sessions.list_sessions(admin, staff.database, staff.clock, email=ann.id)
    for session_id in (session.session_id, "ses_0123456789012345678901"):
        with pytest.raises(Missing, match="no such session"):
            await sessions.end_session(admin, staff.database, staff.clock, session_id=session_id)
    assert await staff.is_alive(token)
    found = await find_session(staff.database, staff.clock, token)
    assert found is not None
    await sessions.end_session(boss, staff.database, staff.clock, session_id=found.session_id)
    assert not await staff.is_alive(token)
    with pytest.raises(Missing):
        await sessions.end_session(boss, staff.database, staff.clock, session_id=found.session_id)


@with_staff
async def test_ending_other_sessions_ends_only_ones_own(staff: StaffDeployment) -> None:
    """This holds whichever id is to be kept."""
    ann, bob = await staff.create("ann@example.org"), await staff.create("bob@example.org")
    token = await staff.session(bob.id)
    await sessions.end_other_sessions(ann, staff.database, staff.clock, keep_session_id="ses_x")
    assert await staff.is_alive(token)
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sessions") == 2


@with_staff
async def test_a_session_ended_concurrently_is_audited_once(staff: StaffDeployment) -> None:
    ann = await staff.create("ann@example.org")
    (session,) = await sessions.list_sessions(ann, staff.database, staff.clock, email=ann.id)
    await asyncio.gather(*(staff.person(ann.id) for _ in range(20)))  # open as many connections as allowed
    await asyncio.gather(
        *(sessions.end_session(ann, staff.database, staff.clock, session_id=session.session_id) for _ in range(20)),
        return_exceptions=True,
    )
    assert [action for action, _ in await staff.actions()].count("session.end") == 1


def _read_only(database: Database) -> Any:
    """Return a database that cannot be written, as with a full disk."""
    return SimpleNamespace(all=database.all, write_one=AsyncMock(side_effect=StoreUnavailable("The disk is full.")))
