"""Sessions end by themselves, by their person, and by administrators; always at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stoplist import ids
from stoplist.db import Database
from stoplist.errors import Forbidden, Missing, StoreUnavailable
from stoplist.staff import sessions
from stoplist.staff.sessions import find_session
from tests.builders import audit_rows, execute, value
from tests.staff.staff_fixture import BROWSER, HERE, Office, in_an_office


@in_an_office
async def test_a_session_ends_after_twelve_hours_without_use(office: Office) -> None:
    """To the minute at worst. Source: docs/interface.md section D11."""
    await office.hire("ann@example.org")
    token = await office.session("ann@example.org")
    for _ in range(5):
        office.clock.advance(43_199.999)
        assert await office.is_alive(token)
    office.clock.advance(43_200)
    assert not await office.is_alive(token)


@in_an_office
async def test_a_session_ends_after_seven_days_in_any_case(office: Office) -> None:
    """However much it is used."""
    await office.hire("ann@example.org")
    token = await office.session("ann@example.org")
    for _ in range(7 * 24 - 1):
        office.clock.advance(3600)
        assert await office.is_alive(token)
    office.clock.advance(3599.999)
    assert await office.is_alive(token)
    office.clock.advance(0.001)
    assert not await office.is_alive(token)


@in_an_office
async def test_a_session_is_found_with_its_person(office: Office) -> None:
    """Closed organizations included."""
    await office.organization()
    await office.hire("ann@example.org", acme="viewer")
    found = await find_session(office.database, office.clock, await office.session("ann@example.org"))
    assert found is not None
    assert found.person == await office.person("ann@example.org")
    assert found.session_id.startswith(ids.SESSION_ID)


@in_an_office
async def test_what_is_no_session_is_nobodys(office: Office) -> None:
    """Malformed, unknown, and the token of another kind; the first and the last cost no look-up."""
    await office.hire("ann@example.org")
    token = await office.session("ann@example.org")
    no_database: Any = None
    wrong_kind = ids.new_secret(ids.ACCESS_TOKEN)
    for text in ("", "x", token[:-1], token + "x", token.swapcase(), wrong_kind, "\0", "ü" * 56, "\ud800"):
        assert await find_session(no_database, office.clock, text) is None
        await sessions.sign_out(no_database, text)
    assert await find_session(office.database, office.clock, ids.new_secret(ids.SESSION)) is None
    assert await office.is_alive(token)


@in_an_office
async def test_the_session_of_somebody_disabled_is_nobodys(office: Office) -> None:
    """Also where it was not ended, by whoever closed the door in another way."""
    await office.hire("ann@example.org")
    token = await office.session("ann@example.org")
    await execute(office.database, "UPDATE people SET is_disabled = 1")
    assert not await office.is_alive(token)


@in_an_office
async def test_use_is_written_once_a_minute(office: Office) -> None:
    """Not with every page."""
    await office.hire("ann@example.org")
    token = await office.session("ann@example.org")

    async def writes(after_s: float) -> int:
        office.clock.advance(after_s)
        before = office.database.counts.commits
        assert await office.is_alive(token)
        return office.database.counts.commits - before

    assert [await writes(seconds) for seconds in (0, 59.999, 0.001, 1, 58.998, 0.001, 0.001)] == [0, 0, 1, 0, 0, 0, 1]


@in_an_office
async def test_whoever_reads_goes_on_where_nothing_can_be_written(office: Office) -> None:
    """That he was here is not worth refusing him."""
    await office.hire("ann@example.org")
    token = await office.session("ann@example.org")
    office.clock.advance(3600)
    assert await find_session(_read_only(office.database), office.clock, token) is not None


@in_an_office
async def test_one_sees_and_ends_ones_own_sessions(office: Office) -> None:
    """Last used first; which one this is, from where, and in what browser."""
    ann = await office.hire("ann@example.org")
    await sessions.end_other_sessions(ann, office.database, office.clock, keep_session_id="")
    tokens, found = [], []
    for _ in range(3):
        office.clock.advance(60)
        tokens.append(await office.session(ann.id))
        found.append(await find_session(office.database, office.clock, tokens[-1]))
    current = found[1]
    assert current is not None
    shown = await sessions.list_sessions(
        ann, office.database, office.clock, email=ann.id, current_session_id=current.session_id
    )
    assert [one.is_current for one in shown] == [False, True, False]
    assert [one.seen_ms for one in shown] == [office.clock.now_ms() - ago_ms for ago_ms in (0, 60_000, 120_000)]
    assert {(one.source_ip, one.user_agent) for one in shown} == {(HERE, BROWSER)}
    await sessions.end_session(ann, office.database, office.clock, session_id=shown[0].session_id)
    assert [await office.is_alive(token) for token in tokens] == [True, True, False]
    ended = await sessions.end_other_sessions(ann, office.database, office.clock, keep_session_id=current.session_id)
    assert ended == 1
    assert [await office.is_alive(token) for token in tokens] == [False, True, False]
    await sessions.sign_out(office.database, tokens[1])
    assert not await office.is_alive(tokens[1])
    rows = [row for row in await audit_rows(office.database) if row.action == "session.end"]
    assert [(row.actor, row.target) for row in rows[1:]] == [("person ann@example.org", ann.id)] * 2


@in_an_office
async def test_ended_sessions_are_not_shown(office: Office) -> None:
    """Nor those that nobody has deleted yet."""
    ann = await office.hire("ann@example.org")
    office.clock.advance(43_200)
    assert await sessions.list_sessions(ann, office.database, office.clock, email=ann.id) == []


@in_an_office
async def test_anothers_sessions_are_an_administrators(office: Office) -> None:
    """Also not of the people of one's organization; what is not one's own is as if it were not."""
    await office.organization()
    ann = await office.hire("ann@example.org", acme="viewer")
    admin = await office.hire("admin@example.org", acme="admin")
    boss = await office.administrator()
    token = await office.session(ann.id)
    (session, _) = await sessions.list_sessions(boss, office.database, office.clock, email="Ann@example.org")
    with pytest.raises(Forbidden):
        await sessions.list_sessions(admin, office.database, office.clock, email=ann.id)
    for session_id in (session.session_id, "ses_0123456789012345678901"):
        with pytest.raises(Missing, match="no such session"):
            await sessions.end_session(admin, office.database, office.clock, session_id=session_id)
    assert await office.is_alive(token)
    found = await find_session(office.database, office.clock, token)
    assert found is not None
    await sessions.end_session(boss, office.database, office.clock, session_id=found.session_id)
    assert not await office.is_alive(token)
    with pytest.raises(Missing):
        await sessions.end_session(boss, office.database, office.clock, session_id=found.session_id)


@in_an_office
async def test_to_end_the_others_ends_nobody_elses(office: Office) -> None:
    """Whatever id is to be kept."""
    ann, bob = await office.hire("ann@example.org"), await office.hire("bob@example.org")
    token = await office.session(bob.id)
    await sessions.end_other_sessions(ann, office.database, office.clock, keep_session_id="ses_x")
    assert await office.is_alive(token)
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sessions") == 2


@in_an_office
async def test_many_who_end_the_same_session_end_it_once(office: Office) -> None:
    """The audit has it once."""
    ann = await office.hire("ann@example.org")
    (session,) = await sessions.list_sessions(ann, office.database, office.clock, email=ann.id)
    await asyncio.gather(*(office.person(ann.id) for _ in range(20)))  # as many connections as there may be
    await asyncio.gather(
        *(sessions.end_session(ann, office.database, office.clock, session_id=session.session_id) for _ in range(20)),
        return_exceptions=True,
    )
    assert [action for action, _ in await office.actions()].count("session.end") == 1


def _read_only(database: Database) -> Any:
    """A database whose disk is full."""

    async def write_one(*_: object, **__: object) -> None:
        raise StoreUnavailable("The disk is full.")

    return SimpleNamespace(all=database.all, write_one=write_one)
