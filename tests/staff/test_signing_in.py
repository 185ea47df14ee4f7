"""Signing in: what succeeds, what fails, and that no answer reveals which accounts exist."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from stoplist import ids
from stoplist.errors import RateLimited, Refused
from stoplist.staff import attempts, people, signing_in, two_step
from stoplist.staff.model import SecondStep, SignedIn
from tests.builders import ADMINISTRATOR, audit_rows, contents, value
from tests.staff.staff_fixture import (
    BROWSER,
    ELSEWHERE,
    HERE,
    PASSWORD,
    CountingHashing,
    StaffDeployment,
    stranger,
    with_staff,
)

WRONG = "not the password at all"


@with_staff
async def test_the_correct_password_signs_in(staff: StaffDeployment) -> None:
    """However the address is written; each time with a new session."""
    await staff.create("ann@example.org")
    staff.clock.advance(60)
    signed_in = [await staff.sign_in(email) for email in ("ann@example.org", " ANN@Example.Org ")]
    tokens = {one.session_token for one in signed_in if isinstance(one, SignedIn)}
    assert len(tokens) == 2
    assert all(ids.is_well_formed(token, ids.SESSION) for token in tokens)
    assert [await staff.is_alive(token) for token in tokens] == [True, True]
    assert (await staff.person("ann@example.org")).last_sign_in_ms == staff.clock.now_ms()
    row = (await audit_rows(staff.database))[-1]
    assert (row.actor, row.source_ip, row.action) == ("person ann@example.org", HERE, "person.sign_in")


@with_staff
async def test_no_answer_reveals_whether_an_account_exists(staff: StaffDeployment) -> None:
    """Unknown, malformed, disabled, without a password, wrong: one text, one class of error, one password check."""
    boss = await staff.administrator()
    await staff.create("ann@example.org")
    await staff.create("closed@example.org")
    await people.disable_person(boss, staff.database, staff.clock, email="closed@example.org")
    await staff.invite("new@example.org")
    count_before = staff.hashing.verified_count
    attempts = [
        ("ann@example.org", WRONG),
        ("ann@example.org", ""),
        ("ann@example.org", "x" * 100_000),
        ("ann@example.org", "\ud800" * 12),
        ("nobody@example.org", PASSWORD),
        ("closed@example.org", PASSWORD),
        ("new@example.org", PASSWORD),
        ("no address", PASSWORD),
        ("\0", PASSWORD),
    ]
    errors = set()
    for email, password in attempts:
        with pytest.raises(Refused) as failure:
            await staff.sign_in(email, password)
        errors.add((type(failure.value), failure.value.text, failure.value.field, failure.value.command))
    assert errors == {(Refused, signing_in.NOT_RECOGNISED, None, "")}
    assert staff.hashing.verified_count == count_before + len(attempts)


@with_staff
async def test_failures_cost_the_same_for_unknown_accounts(staff: StaffDeployment) -> None:
    """Each writes a row, in as many commits, so that timing reveals nothing either."""
    await staff.create("ann@example.org")
    staff.hashing.meanwhile = AsyncMock(side_effect=lambda: staff.clock.advance(1))
    commits = []
    for email in ("ann@example.org", "nobody@example.org", "no address"):
        before = staff.database.counts.commits
        with pytest.raises(Refused):
            await staff.sign_in(email, WRONG)
        commits.append(staff.database.counts.commits - before)
        failed_ms = await value(staff.database, "SELECT MAX(at_ms) AS it FROM sign_in_attempts")
        assert failed_ms == staff.clock.now_ms()
    assert len(set(commits)) == 1


@with_staff
async def test_only_failures_of_existing_accounts_are_audited(staff: StaffDeployment) -> None:
    """Other text is not stored: it may be a password typed into the wrong field."""
    await staff.create("ann@example.org")
    await staff.create("closed@example.org")
    await people.disable_person(ADMINISTRATOR, staff.database, staff.clock, email="closed@example.org")
    before = len(await audit_rows(staff.database))
    with pytest.raises(Refused):
        await staff.sign_in("closed@example.org")
    for email in ("Ann@example.org", "nobody@example.org", PASSWORD):
        with pytest.raises(Refused):
            await staff.sign_in(email, WRONG)
    rows = (await audit_rows(staff.database))[before:]
    assert [(row.actor, row.source_ip, row.action, row.target, row.detail) for row in rows] == [
        ("person ", HERE, "person.sign_in_failed", email, {"what": "password"})
        for email in ("closed@example.org", "ann@example.org")
    ]


@with_staff
async def test_an_account_disabled_during_the_check_is_refused(staff: StaffDeployment) -> None:
    """No session begins for an account that is disabled while the password is being checked."""
    await staff.create("ann@example.org")
    staff.hashing.meanwhile = lambda: people.disable_person(
        ADMINISTRATOR, staff.database, staff.clock, email="ann@example.org"
    )
    with pytest.raises(Refused, match="is wrong"):
        await staff.sign_in("ann@example.org")
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sessions WHERE user_agent <> ''") == 0


@with_staff
async def test_a_password_changed_during_the_check_is_refused(staff: StaffDeployment) -> None:
    """A new password ends every session, so none may begin with the old password after that."""
    await staff.create("ann@example.org")
    link = await people.new_link(ADMINISTRATOR, staff.database, staff.clock, email="ann@example.org")
    staff.hashing.meanwhile = lambda: staff.use_link(link.link_token, "another password of mine")
    with pytest.raises(Refused, match="is wrong"):
        await staff.sign_in("ann@example.org")


# The second step


@with_staff
async def test_two_step_sign_in_needs_a_code(staff: StaffDeployment) -> None:
    """The password alone begins no session."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    sessions = await value(staff.database, "SELECT COUNT(*) AS n FROM sessions")
    ticket = await staff.ticket(ann.id)
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sessions") == sessions
    staff.clock.advance(30)
    signed_in = await staff.second_step(ticket, f" {app.code(staff.clock)} ")
    assert await staff.is_alive(signed_in.session_token)
    assert (await audit_rows(staff.database))[-1].detail["by"] == "code"


@with_staff
async def test_a_ticket_expires_after_five_minutes(staff: StaffDeployment) -> None:
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    tickets = [await staff.ticket(ann.id) for _ in range(2)]
    staff.clock.advance(299.999)
    assert await staff.second_step(tickets[0], app.code(staff.clock))
    staff.clock.advance(0.001)
    await _ticket_refused(staff, tickets[1], app.code(staff.clock, steps=1))


@with_staff
async def test_a_ticket_is_good_once(staff: StaffDeployment) -> None:
    """A wrong code does not use it up."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    ticket = await staff.ticket(ann.id)
    staff.clock.advance(30)
    await _code_refused(staff, ticket, "000000")
    assert await staff.second_step(ticket, app.code(staff.clock))
    staff.clock.advance(30)
    await _ticket_refused(staff, ticket, app.code(staff.clock))


@with_staff
async def test_a_ticket_used_meanwhile_is_refused(staff: StaffDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was valid when the request arrived; with a code of its own, the request would begin a second session."""
    ann = await staff.create("ann@example.org")
    app, begin = await staff.set_up_app(ann), attempts.begin
    ticket = await staff.ticket(ann.id)

    async def begin_after_another_use(*given: Any, **named: Any) -> attempts.Attempt:
        monkeypatch.setattr(attempts, "begin", begin)
        assert await staff.second_step(ticket, app.recovery_codes[0])
        return await begin(*given, **named)

    monkeypatch.setattr(attempts, "begin", begin_after_another_use)
    await _ticket_refused(staff, ticket, app.recovery_codes[1])


@with_staff
async def test_a_copy_with_the_secret_key_makes_no_ticket(staff: StaffDeployment) -> None:
    """The copy holds the hash of a random value and nothing that it could be computed from."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    ticket = await staff.ticket(ann.id)
    assert ticket not in repr(await contents(staff.database, "sign_in_tickets"))
    stored: bytes = await value(staff.database, "SELECT ticket_hash FROM sign_in_tickets")
    staff.clock.advance(30)
    for made in (stored.hex(), ids.SIGN_IN_TICKET + stored.hex()[:49]):
        await _ticket_refused(staff, made, app.code(staff.clock))


@with_staff
async def test_a_ticket_ends_with_the_password_and_the_account(staff: StaffDeployment) -> None:
    """It also ends when two-step sign-in is turned off, since it proves only a password that may be known."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    tickets = [await staff.ticket(ann.id) for _ in range(2)]
    link = await people.new_link(ADMINISTRATOR, staff.database, staff.clock, email=ann.id)
    await staff.use_link(link.link_token, "another password of mine")
    staff.clock.advance(30)
    await _ticket_refused(staff, tickets[0], app.code(staff.clock))
    answer = await staff.sign_in(ann.id, "another password of mine")
    assert isinstance(answer, SecondStep)
    await people.disable_person(ADMINISTRATOR, staff.database, staff.clock, email=ann.id)
    await _ticket_refused(staff, answer.ticket, app.code(staff.clock))
    await people.enable_person(ADMINISTRATOR, staff.database, staff.clock, email=ann.id)
    await two_step.turn_off(ann, staff.stores, password="another password of mine")
    await _ticket_refused(staff, answer.ticket, app.code(staff.clock))


@with_staff
async def test_a_malformed_ticket_is_refused(staff: StaffDeployment) -> None:
    for ticket in ("", "x", "A" * 86, "\ud800" * 86, "ü" * 86, "A" * 85 + "\n"):
        await _ticket_refused(staff, ticket, "123456")


@with_staff
async def test_an_altered_ticket_is_refused(staff: StaffDeployment) -> None:
    """This holds for each of its characters."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    ticket = await staff.ticket(ann.id)
    staff.clock.advance(30)
    for at in range(0, len(ticket) - 1, 5):
        other = "A" if ticket[at] != "A" else "B"
        await _ticket_refused(staff, ticket[:at] + other + ticket[at + 1 :], app.code(staff.clock))
    assert await staff.second_step(ticket, app.code(staff.clock))


@with_staff
async def test_codes_of_the_adjacent_steps_are_accepted(staff: StaffDeployment) -> None:
    """One step to either side, and no further (RFC 6238 section 5.2)."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    staff.clock.advance(300)
    for steps in (-2, 2):
        await _code_refused(staff, await staff.ticket(ann.id), app.code(staff.clock, steps=steps))
    for steps in (-1, 0, 1):
        assert await staff.second_step(await staff.ticket(ann.id), app.code(staff.clock, steps=steps))


@with_staff
async def test_no_code_is_accepted_twice(staff: StaffDeployment) -> None:
    """Nor an earlier one, nor the one that turned two-step on; of many concurrent uses one succeeds."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    await _code_refused(staff, await staff.ticket(ann.id), app.code(staff.clock))
    staff.clock.advance(60)
    tickets, code = [await staff.ticket(ann.id) for _ in range(5)], app.code(staff.clock)
    done = await asyncio.gather(*(staff.second_step(ticket, code) for ticket in tickets), return_exceptions=True)
    assert len([one for one in done if isinstance(one, SignedIn)]) == 1
    ticket = await staff.ticket(ann.id)
    await _code_refused(staff, ticket, code)
    await _code_refused(staff, ticket, app.code(staff.clock, steps=-1))


@with_staff
async def test_a_recovery_code_is_good_once(staff: StaffDeployment) -> None:
    """It replaces a code, however it is typed; of many concurrent uses one succeeds."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    tickets = [await staff.ticket(ann.id) for _ in range(5)]
    typed = app.recovery_codes[3].upper().replace("-", " ")
    done = await asyncio.gather(*(staff.second_step(ticket, typed) for ticket in tickets), return_exceptions=True)
    assert len([one for one in done if isinstance(one, SignedIn)]) == 1
    assert "recovery code" in [row.detail.get("by") for row in await audit_rows(staff.database)]
    ticket = await staff.ticket(ann.id)
    await _code_refused(staff, ticket, app.recovery_codes[3])
    assert await staff.second_step(ticket, app.recovery_codes[4])


@with_staff
async def test_recovery_codes_work_only_for_their_person(staff: StaffDeployment) -> None:
    ann, bob = await staff.create("ann@example.org"), await staff.create("bob@example.org")
    app = await staff.set_up_app(ann)
    await staff.set_up_app(bob)
    await _code_refused(staff, await staff.ticket(bob.id), app.recovery_codes[0])


@with_staff
async def test_a_malformed_code_is_wrong(staff: StaffDeployment) -> None:
    ann = await staff.create("ann@example.org")
    await staff.set_up_app(ann)
    ticket = await staff.ticket(ann.id)
    for code in ("", "12345", "1234567", "१२३४५६", "\0", "\ud800", "x" * 100_000):
        await _code_refused(staff, ticket, code)


# The limits


@with_staff
async def test_ten_failures_lock_an_account_for_that_source(staff: StaffDeployment) -> None:
    """The correct password is refused too; other accounts and sources are not locked.

    Source: docs/interface.md section D11.
    """
    await staff.create("ann@example.org")
    await staff.create("bob@example.org")
    for attempt in range(10):
        staff.clock.advance(1)
        with pytest.raises(Refused):
            await staff.sign_in("ann@example.org", f"{WRONG} {attempt}")
    checks_before, writes_before = staff.hashing.verified_count, staff.database.counts.writes
    with pytest.raises(RateLimited) as failure:
        await staff.sign_in("ANN@example.org")
    assert staff.database.counts.writes == writes_before  # attempts on a locked account delay nobody
    assert failure.value.retry_after_s == 900 - 9
    assert staff.hashing.verified_count == checks_before
    assert isinstance(await staff.sign_in("bob@example.org"), SignedIn)
    assert isinstance(await staff.sign_in("ann@example.org", source=ELSEWHERE), SignedIn)
    staff.clock.advance(failure.value.retry_after_s - 0.001)
    with pytest.raises(RateLimited):
        await staff.sign_in("ann@example.org")
    staff.clock.advance(0.001)
    assert isinstance(await staff.sign_in("ann@example.org"), SignedIn)


@with_staff
async def test_unknown_accounts_are_locked_like_existing_ones(staff: StaffDeployment) -> None:
    """The same number of attempts locks them, with the same text."""
    await staff.create("ann@example.org")
    refusals = []
    for email in ("ann@example.org", "nobody@example.org", "no address"):
        for _ in range(10):
            with pytest.raises(Refused):
                await staff.sign_in(email, WRONG)
        with pytest.raises(RateLimited) as failure:
            await staff.sign_in(email, WRONG)
        refusals.append((failure.value.text, failure.value.retry_after_s))
    assert len(set(refusals)) == 1


@with_staff
async def test_a_hundred_failures_lock_a_source(staff: StaffDeployment) -> None:
    """It is locked for all accounts; an IPv6 source is its /64."""
    await staff.create("ann@example.org")
    for attempt in range(100):
        with pytest.raises(Refused):
            await staff.sign_in(f"nobody-{attempt}@example.org", source=f"2001:db8:1:2::{attempt:x}")
    with pytest.raises(RateLimited):
        await staff.sign_in("ann@example.org", source="2001:db8:1:2:ffff::1")
    assert isinstance(await staff.sign_in("ann@example.org", source="2001:db8:1:3::1"), SignedIn)


@with_staff
async def test_an_ipv6_48_fails_as_often_as_four_sources(staff: StaffDeployment) -> None:
    """40 failures of an account from any of its /64s; what succeeds does not count, nor does another /48."""
    await staff.create("ann@example.org")
    for number in range(40):
        with pytest.raises(Refused):
            await staff.sign_in("ann@example.org", password="wrong " * 3, source=f"2001:db8:1:{number:x}::1")
        if number == 20:
            assert isinstance(await staff.sign_in("ann@example.org", source="2001:db8:1:ff::1"), SignedIn)
    with pytest.raises(RateLimited):
        await staff.sign_in("ann@example.org", source="2001:db8:1:ffff::1")
    assert isinstance(await staff.sign_in("ann@example.org", source="2001:db8:2::1"), SignedIn)


@with_staff
async def test_of_fifty_concurrent_attempts_ten_are_checked(staff: StaffDeployment) -> None:
    """An attempt is reserved before the password is checked."""
    await staff.create("ann@example.org")
    before = staff.hashing.verified_count
    results = await asyncio.gather(
        *(staff.sign_in("ann@example.org", f"{WRONG} {number}") for number in range(50)), return_exceptions=True
    )
    assert staff.hashing.verified_count - before == 10
    assert len([result for result in results if isinstance(result, RateLimited)]) == 40
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sign_in_attempts") == 10


@with_staff
async def test_successful_sign_ins_are_not_counted(staff: StaffDeployment) -> None:
    ann = await staff.create("ann@example.org")
    for _ in range(12):
        await staff.session(ann.id)
    app = await staff.set_up_app(ann)
    for code in app.recovery_codes:
        await staff.second_step(await staff.ticket(ann.id), code)
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sign_in_attempts") == 0


@with_staff
async def test_wrong_codes_count_like_wrong_passwords(staff: StaffDeployment) -> None:
    """The limit is ten of both together, with or without a ticket."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    ticket = await staff.ticket(ann.id)
    for _ in range(5):
        await _code_refused(staff, ticket, "no code")
        with pytest.raises(Refused):
            await staff.sign_in(ann.id, WRONG)
    staff.clock.advance(30)
    for attempt in (staff.second_step(ticket, app.code(staff.clock)), staff.sign_in(ann.id)):
        with pytest.raises(RateLimited):
            await attempt
    assert await staff.second_step(ticket, app.code(staff.clock), source=ELSEWHERE)


@with_staff
async def test_codes_cannot_be_guessed_from_many_sources(staff: StaffDeployment) -> None:
    """Ten wrong codes in 15 minutes per account, from all sources together: there are only a million codes."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    ticket = await staff.ticket(ann.id)
    for number in range(10):
        with pytest.raises(Refused):
            await staff.second_step(ticket, "no code", source=f"2001:db8:0:{number:x}::1")
    staff.clock.advance(30)
    with pytest.raises(RateLimited):
        await staff.second_step(ticket, app.code(staff.clock), source="2001:db8:0:ffff::1")
    assert isinstance(await staff.sign_in(ann.id), SecondStep)
    staff.clock.advance(15 * 60)
    assert await staff.second_step(await staff.ticket(ann.id), app.code(staff.clock), source=ELSEWHERE)


@with_staff
async def test_a_busy_server_counts_no_failure(staff: StaffDeployment) -> None:
    """A password that was not checked did not fail."""
    await staff.create("ann@example.org")
    staff.hashing = CountingHashing(max_concurrent=1, max_waiting=-1)
    with pytest.raises(RateLimited) as failure:
        await staff.sign_in("ann@example.org")
    assert failure.value.retry_after_s == 1
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sign_in_attempts") == 0


@with_staff
async def test_any_user_agent_is_stored_as_one_line(staff: StaffDeployment) -> None:
    """It is stored without control characters, and cut to the length of a line."""
    await staff.create("ann@example.org")
    await signing_in.sign_in(
        stranger(),
        staff.stores,
        email="ann@example.org",
        password=PASSWORD,
        user_agent=BROWSER + "\0\r\n\u202e\ud800" + "x" * 10_000,
    )
    agents = await value(staff.database, "SELECT MAX(user_agent) AS it FROM sessions")
    assert agents == BROWSER + "x" * (300 - len(BROWSER) - 5)


async def _ticket_refused(staff: StaffDeployment, ticket: str, code: str) -> None:
    with pytest.raises(Refused) as failure:
        await staff.second_step(ticket, code)
    assert (failure.value.text, failure.value.field) == (signing_in.SIGN_IN_AGAIN, None)


async def _code_refused(staff: StaffDeployment, ticket: str, code: str) -> Any:
    with pytest.raises(Refused) as failure:
        await staff.second_step(ticket, code)
    assert (failure.value.text, failure.value.field) == (two_step.WRONG_CODE, "code")
