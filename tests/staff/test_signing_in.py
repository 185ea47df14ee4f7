"""Signing in: what opens the door, what does not, and that no answer tells which accounts there are."""

import asyncio
from typing import Any

import pytest

from stoplist import ids
from stoplist.errors import RateLimited, Refused
from stoplist.staff import people, signing_in, two_step
from stoplist.staff.model import SecondStep, SignedIn
from tests.builders import ADMINISTRATOR, audit_rows, value
from tests.staff.staff_fixture import (
    BROWSER,
    ELSEWHERE,
    HERE,
    PASSWORD,
    CountingHashing,
    Office,
    in_an_office,
    stranger,
)

WRONG = "not the password at all"


@in_an_office
async def test_the_right_password_opens_the_door(office: Office) -> None:
    """However the address is written; with a session of its own each time."""
    await office.hire("ann@example.org")
    office.clock.advance(60)
    signed_in = [await office.sign_in(email) for email in ("ann@example.org", " ANN@Example.Org ")]
    tokens = {one.session_token for one in signed_in if isinstance(one, SignedIn)}
    assert len(tokens) == 2
    assert all(ids.is_well_formed(token, ids.SESSION) for token in tokens)
    assert [await office.is_alive(token) for token in tokens] == [True, True]
    assert (await office.person("ann@example.org")).last_sign_in_ms == office.clock.now_ms()
    row = (await audit_rows(office.database))[-1]
    assert (row.actor, row.source_ip, row.action) == ("person ann@example.org", HERE, "person.sign_in")


@in_an_office
async def test_no_answer_tells_whether_there_is_an_account(office: Office) -> None:
    """Unknown, malformed, closed, without a password, wrong: one text, one kind of error, a password looked into."""
    boss = await office.administrator()
    await office.hire("ann@example.org")
    await office.hire("closed@example.org")
    await people.disable_person(boss, office.database, office.clock, email="closed@example.org")
    await office.invite("new@example.org")
    with_attempt = office.hashing.with_attempt
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
    told = set()
    for email, password in attempts:
        with pytest.raises(Refused) as failure:
            await office.sign_in(email, password)
        told.add((type(failure.value), failure.value.text, failure.value.field, failure.value.command))
    assert told == {(Refused, signing_in.NOT_RECOGNISED, None, "")}
    assert office.hashing.with_attempt == with_attempt + len(attempts)


@in_an_office
async def test_a_failure_is_written_down_whoever_it_is(office: Office) -> None:
    """With a change that has to reach the disk, and one commit: so time does not tell either."""
    await office.hire("ann@example.org")

    class Slow(CountingHashing):
        async def is_right(self, password: bytes, password_hash: str | None) -> bool:
            office.clock.advance(1)
            return await super().is_right(password, password_hash)

    office.hashing = Slow()
    commits = []
    for email in ("ann@example.org", "nobody@example.org", "no address"):
        before = office.database.counts.commits
        with pytest.raises(Refused):
            await office.sign_in(email, WRONG)
        commits.append(office.database.counts.commits - before)
        failed_ms = await value(office.database, "SELECT MAX(at_ms) AS it FROM sign_in_attempts")
        assert failed_ms == office.clock.now_ms()
    assert len(set(commits)) == 1


@in_an_office
async def test_the_audit_has_failures_of_known_accounts_alone(office: Office) -> None:
    """What a stranger types is nobody's business: it may be a password in the wrong field."""
    await office.hire("ann@example.org")
    await office.hire("closed@example.org")
    await people.disable_person(ADMINISTRATOR, office.database, office.clock, email="closed@example.org")
    before = len(await audit_rows(office.database))
    with pytest.raises(Refused):
        await office.sign_in("closed@example.org")
    for email in ("Ann@example.org", "nobody@example.org", PASSWORD):
        with pytest.raises(Refused):
            await office.sign_in(email, WRONG)
    rows = (await audit_rows(office.database))[before:]
    assert [(row.actor, row.source_ip, row.action, row.target, row.detail) for row in rows] == [
        ("person ", HERE, "person.sign_in_failed", email, {"what": "password"})
        for email in ("closed@example.org", "ann@example.org")
    ]


@in_an_office
async def test_a_door_that_closes_meanwhile_stays_closed(office: Office) -> None:
    """Whoever is disabled while his password is being looked into is not in."""
    await office.hire("ann@example.org")

    class Slow(CountingHashing):
        async def is_right(self, password: bytes, password_hash: str | None) -> bool:
            right = await super().is_right(password, password_hash)
            await people.disable_person(ADMINISTRATOR, office.database, office.clock, email="ann@example.org")
            return right

    office.hashing = Slow()
    with pytest.raises(Refused, match="not right"):
        await office.sign_in("ann@example.org")
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sessions WHERE user_agent <> ''") == 0


@in_an_office
async def test_a_password_that_changes_meanwhile_is_not_right_any_more(office: Office) -> None:
    """Whoever chose a new one has ended every session; none of the old password begins after that."""
    await office.hire("ann@example.org")
    made = await people.new_link(ADMINISTRATOR, office.database, office.clock, email="ann@example.org")

    class Slow(CountingHashing):
        async def is_right(self, password: bytes, password_hash: str | None) -> bool:
            right = await super().is_right(password, password_hash)
            office.hashing = CountingHashing()
            await office.use_link(made.link_token, "another password of mine")
            return right

    office.hashing = Slow()
    with pytest.raises(Refused, match="not right"):
        await office.sign_in("ann@example.org")


# The second step


@in_an_office
async def test_a_code_is_asked_for_where_it_is_turned_on(office: Office) -> None:
    """The password alone begins no session."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    sessions = await value(office.database, "SELECT COUNT(*) AS n FROM sessions")
    ticket = await office.ticket(ann.id)
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sessions") == sessions
    office.clock.advance(30)
    signed_in = await office.second_step(ticket, f" {app.code(office.clock)} ")
    assert await office.is_alive(signed_in.session_token)
    assert (await audit_rows(office.database))[-1].detail["by"] == "code"


@in_an_office
async def test_a_ticket_is_good_for_five_minutes(office: Office) -> None:
    """To the millisecond."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    ticket = await office.ticket(ann.id)
    office.clock.advance(299.999)
    assert await office.second_step(ticket, app.code(office.clock))
    office.clock.advance(0.001)
    await _begin_anew(office, ticket, app.code(office.clock, steps=1))


@in_an_office
async def test_a_ticket_of_an_old_password_or_a_closed_door_is_worth_nothing(office: Office) -> None:
    """Nor one whose second step was turned off: whoever holds it proved a password that may be known."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    tickets = [await office.ticket(ann.id) for _ in range(2)]
    made = await people.new_link(ADMINISTRATOR, office.database, office.clock, email=ann.id)
    await office.use_link(made.link_token, "another password of mine")
    office.clock.advance(30)
    await _begin_anew(office, tickets[0], app.code(office.clock))
    answer = await office.sign_in(ann.id, "another password of mine")
    assert isinstance(answer, SecondStep)
    await people.disable_person(ADMINISTRATOR, office.database, office.clock, email=ann.id)
    await _begin_anew(office, answer.ticket, app.code(office.clock))
    await people.enable_person(ADMINISTRATOR, office.database, office.clock, email=ann.id)
    await two_step.turn_off(ann, office.stores, password="another password of mine")
    await _begin_anew(office, answer.ticket, app.code(office.clock))


@in_an_office
async def test_what_is_no_ticket_begins_nothing(office: Office) -> None:
    """Any text will do."""
    for ticket in ("", "x", "A" * 86, "\ud800" * 86, "ü" * 86, "A" * 85 + "\n"):
        await _begin_anew(office, ticket, "123456")


@in_an_office
async def test_a_ticket_that_was_altered_is_refused(office: Office) -> None:
    """Whichever character it is; and one of another key."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    ticket = await office.ticket(ann.id)
    office.clock.advance(30)
    for at in range(0, len(ticket) - 1, 5):
        other = "A" if ticket[at] != "A" else "B"
        await _begin_anew(office, ticket[:at] + other + ticket[at + 1 :], app.code(office.clock))
    assert await office.second_step(ticket, app.code(office.clock))


@in_an_office
async def test_an_app_works_half_a_minute_before_and_after(office: Office) -> None:
    """One step to either side, and no further (RFC 6238 section 5.2)."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    office.clock.advance(300)
    for steps in (-2, 2):
        await _wrong_code(office, await office.ticket(ann.id), app.code(office.clock, steps=steps))
    for steps in (-1, 0, 1):
        assert await office.second_step(await office.ticket(ann.id), app.code(office.clock, steps=steps))


@in_an_office
async def test_no_code_is_accepted_twice(office: Office) -> None:
    """Nor one before the last, of the app that set it up included; of many at once one gets in."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    await _wrong_code(office, await office.ticket(ann.id), app.code(office.clock))
    office.clock.advance(60)
    ticket, code = await office.ticket(ann.id), app.code(office.clock)
    done = await asyncio.gather(*(office.second_step(ticket, code) for _ in range(5)), return_exceptions=True)
    assert len([one for one in done if isinstance(one, SignedIn)]) == 1
    await _wrong_code(office, ticket, code)
    await _wrong_code(office, ticket, app.code(office.clock, steps=-1))


@in_an_office
async def test_a_recovery_code_is_good_once(office: Office) -> None:
    """In place of a code, however it is typed; of many at once one gets in."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    ticket = await office.ticket(ann.id)
    typed = app.recovery_codes[3].upper().replace("-", " ")
    done = await asyncio.gather(*(office.second_step(ticket, typed) for _ in range(5)), return_exceptions=True)
    assert len([one for one in done if isinstance(one, SignedIn)]) == 1
    assert "recovery code" in [row.detail.get("by") for row in await audit_rows(office.database)]
    await _wrong_code(office, ticket, app.recovery_codes[3])
    assert await office.second_step(ticket, app.recovery_codes[4])


@in_an_office
async def test_the_codes_of_one_person_are_nothing_to_another(office: Office) -> None:
    """Recovery codes are looked for among one's own."""
    ann, bob = await office.hire("ann@example.org"), await office.hire("bob@example.org")
    app = await office.set_up_app(ann)
    await office.set_up_app(bob)
    await _wrong_code(office, await office.ticket(bob.id), app.recovery_codes[0])


@in_an_office
async def test_what_is_no_code_is_wrong(office: Office) -> None:
    """Any text will do."""
    ann = await office.hire("ann@example.org")
    await office.set_up_app(ann)
    ticket = await office.ticket(ann.id)
    for code in ("", "12345", "1234567", "१२३४५६", "\0", "\ud800", "x" * 100_000):
        await _wrong_code(office, ticket, code)


# The limits


@in_an_office
async def test_ten_failures_close_the_door_to_a_source_for_that_account(office: Office) -> None:
    """To the right password, too; other accounts and sources are let in. Source: docs/interface.md section D11."""
    await office.hire("ann@example.org")
    await office.hire("bob@example.org")
    for attempt in range(10):
        office.clock.advance(1)
        with pytest.raises(Refused):
            await office.sign_in("ann@example.org", f"{WRONG} {attempt}")
    with_attempt, writes = office.hashing.with_attempt, office.database.counts.writes
    with pytest.raises(RateLimited) as failure:
        await office.sign_in("ANN@example.org")
    assert office.database.counts.writes == writes  # whoever knocks at a closed door holds nobody up
    assert failure.value.retry_after_s == 900 - 9
    assert office.hashing.with_attempt == with_attempt
    assert isinstance(await office.sign_in("bob@example.org"), SignedIn)
    assert isinstance(await office.sign_in("ann@example.org", source=ELSEWHERE), SignedIn)
    office.clock.advance(failure.value.retry_after_s - 0.001)
    with pytest.raises(RateLimited):
        await office.sign_in("ann@example.org")
    office.clock.advance(0.001)
    assert isinstance(await office.sign_in("ann@example.org"), SignedIn)


@in_an_office
async def test_the_limit_holds_for_accounts_that_there_are_not(office: Office) -> None:
    """The same number of tries, and the same text."""
    await office.hire("ann@example.org")
    told = []
    for email in ("ann@example.org", "nobody@example.org", "no address"):
        for _ in range(10):
            with pytest.raises(Refused):
                await office.sign_in(email, WRONG)
        with pytest.raises(RateLimited) as failure:
            await office.sign_in(email, WRONG)
        told.append((failure.value.text, failure.value.retry_after_s))
    assert len(set(told)) == 1


@in_an_office
async def test_a_hundred_failures_close_the_door_to_a_source(office: Office) -> None:
    """Whatever the account; an IPv6 source is its /64."""
    await office.hire("ann@example.org")
    for attempt in range(100):
        with pytest.raises(Refused):
            await office.sign_in(f"nobody-{attempt}@example.org", source=f"2001:db8:1:2::{attempt:x}")
    with pytest.raises(RateLimited):
        await office.sign_in("ann@example.org", source="2001:db8:1:2:ffff::1")
    assert isinstance(await office.sign_in("ann@example.org", source="2001:db8:1:3::1"), SignedIn)


@in_an_office
async def test_of_fifty_at_once_ten_are_looked_into(office: Office) -> None:
    """An attempt takes its place before the password is looked at."""
    await office.hire("ann@example.org")
    before = office.hashing.with_attempt
    done = await asyncio.gather(
        *(office.sign_in("ann@example.org", f"{WRONG} {number}") for number in range(50)), return_exceptions=True
    )
    assert office.hashing.with_attempt - before == 10
    assert len([one for one in done if isinstance(one, RateLimited)]) == 40
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sign_in_attempts") == 10


@in_an_office
async def test_success_is_no_failure(office: Office) -> None:
    """However often somebody signs in, nothing is counted."""
    ann = await office.hire("ann@example.org")
    for _ in range(12):
        await office.session(ann.id)
    app = await office.set_up_app(ann)
    for code in app.recovery_codes:
        await office.second_step(await office.ticket(ann.id), code)
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sign_in_attempts") == 0


@in_an_office
async def test_wrong_codes_count_like_wrong_passwords(office: Office) -> None:
    """Ten of both together; a ticket does not help over it."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    ticket = await office.ticket(ann.id)
    for _ in range(5):
        await _wrong_code(office, ticket, "no code")
        with pytest.raises(Refused):
            await office.sign_in(ann.id, WRONG)
    office.clock.advance(30)
    for attempt in (office.second_step(ticket, app.code(office.clock)), office.sign_in(ann.id)):
        with pytest.raises(RateLimited):
            await attempt
    assert await office.second_step(ticket, app.code(office.clock), source=ELSEWHERE)


@in_an_office
async def test_codes_are_not_guessed_from_many_sources(office: Office) -> None:
    """Ten wrong codes in 15 minutes for an account, wherever they come from: there are only a million codes."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    ticket = await office.ticket(ann.id)
    for number in range(10):
        with pytest.raises(Refused):
            await office.second_step(ticket, "no code", source=f"2001:db8:0:{number:x}::1")
    office.clock.advance(30)
    with pytest.raises(RateLimited):
        await office.second_step(ticket, app.code(office.clock), source="2001:db8:0:ffff::1")
    assert isinstance(await office.sign_in(ann.id), SecondStep)
    office.clock.advance(15 * 60)
    assert await office.second_step(await office.ticket(ann.id), app.code(office.clock), source=ELSEWHERE)


@in_an_office
async def test_a_busy_server_counts_nothing(office: Office) -> None:
    """What was not looked into did not fail."""
    await office.hire("ann@example.org")
    office.hashing = CountingHashing(at_a_time=1, most_waiting=-1)
    with pytest.raises(RateLimited) as failure:
        await office.sign_in("ann@example.org")
    assert failure.value.retry_after_s == 1
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sign_in_attempts") == 0


@in_an_office
async def test_a_browser_that_says_anything_is_shown_as_one_line(office: Office) -> None:
    """No control character, and no more than a line's worth."""
    await office.hire("ann@example.org")
    await signing_in.sign_in(
        stranger(),
        office.stores,
        email="ann@example.org",
        password=PASSWORD,
        user_agent=BROWSER + "\0\r\n\u202e\ud800" + "x" * 10_000,
    )
    agents = await value(office.database, "SELECT MAX(user_agent) AS it FROM sessions")
    assert agents == BROWSER + "x" * (300 - len(BROWSER) - 5)


async def _begin_anew(office: Office, ticket: str, code: str) -> None:
    with pytest.raises(Refused) as failure:
        await office.second_step(ticket, code)
    assert (failure.value.text, failure.value.field) == (signing_in.BEGIN_ANEW, None)


async def _wrong_code(office: Office, ticket: str, code: str) -> Any:
    with pytest.raises(Refused) as failure:
        await office.second_step(ticket, code)
    assert (failure.value.text, failure.value.field) == (two_step.WRONG_CODE, "code")
