"""Sign-in links are good once, for a day, and are used up by choosing a password, not by being opened."""

import asyncio

import pytest

from stoplist import ids
from stoplist.errors import RateLimited, Refused
from stoplist.staff import links, people
from stoplist.staff.model import SecondStep, SignedIn
from tests.builders import ADMINISTRATOR, audit_rows
from tests.staff.staff_fixture import BROWSER, CHEAP, HERE, PASSWORD, CountingHashing, StaffDeployment, with_staff

NEW = "another password of mine"


class SimultaneousHashing(CountingHashing):
    """Holds each hash back until `count` have been requested, and so until `count` links have been found valid."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._missing, self._all_requested = count, asyncio.Event()

    async def hash(self, password: bytes) -> str:
        self._missing -= 1
        if self._missing == 0:
            self._all_requested.set()
        await self._all_requested.wait()
        return await super().hash(password)


@with_staff
async def test_opening_a_link_does_not_use_it_up(staff: StaffDeployment) -> None:
    """Mail scanners open the links they find. Source: docs/interface.md section D11."""
    link = await staff.invite("ann@example.org")
    for _ in range(3):
        assert await links.person_of_link(staff.database, staff.clock, link.link_token) == link.person
    signed_in = await staff.use_link(link.link_token)
    assert isinstance(signed_in, SignedIn)
    assert signed_in.person.has_password
    assert signed_in.person.last_sign_in_ms == staff.clock.now_ms()
    assert await staff.is_alive(signed_in.session_token)
    assert await links.person_of_link(staff.database, staff.clock, link.link_token) is None


@with_staff
async def test_one_of_many_concurrent_uses_of_a_link_succeeds(staff: StaffDeployment) -> None:
    """Its password is the one that is set."""
    link = await staff.invite("ann@example.org")
    passwords = [f"the password of number {number}" for number in range(8)]
    staff.hashing = SimultaneousHashing(len(passwords))
    done = await asyncio.gather(
        *(staff.use_link(link.link_token, password) for password in passwords), return_exceptions=True
    )
    staff.hashing = CountingHashing()
    (winner,) = [at for at, one in enumerate(done) if isinstance(one, SignedIn)]
    assert all(
        isinstance(one, Refused) and one.text == links.DEAD_LINK for one in done if not isinstance(one, SignedIn)
    )
    assert isinstance(await staff.sign_in("ann@example.org", passwords[winner]), SignedIn)
    with pytest.raises(Refused):
        await staff.sign_in("ann@example.org", passwords[winner - 1])


@with_staff
async def test_a_link_expires_after_a_day(staff: StaffDeployment) -> None:
    link = await staff.invite("ann@example.org")
    staff.clock.advance(86_399.999)
    assert await links.person_of_link(staff.database, staff.clock, link.link_token) is not None
    staff.clock.advance(0.001)
    assert await links.person_of_link(staff.database, staff.clock, link.link_token) is None
    with pytest.raises(Refused, match="expired"):
        await staff.use_link(link.link_token)


@with_staff
async def test_an_invalid_link_is_refused_without_hashing(staff: StaffDeployment) -> None:
    """A server too busy to hash refuses it all the same."""
    staff.hashing = CountingHashing(max_concurrent=1, max_waiting=-1)
    unknown = ids.new_secret(ids.SIGN_IN_LINK)
    for link_token in ("", "svc_sl_", "svc_sl_" + "0" * 49, "\0", "ü", "\ud800", unknown):
        assert await links.person_of_link(staff.database, staff.clock, link_token) is None
        with pytest.raises(Refused, match="already been used"):
            await staff.use_link(link_token)


@with_staff
async def test_an_unacceptable_password_leaves_the_link_valid(staff: StaffDeployment) -> None:
    link = await staff.invite("ann@example.org")
    for password in ("", "eleven char", "x" * 129, "x" * 10_000, "twelve chars\ud800"):
        with pytest.raises(Refused) as failure:
            await staff.use_link(link.link_token, password)
        assert failure.value.field == "password"
    assert isinstance(await staff.use_link(link.link_token), SignedIn)


@with_staff
async def test_a_new_password_ends_every_session_and_link(staff: StaffDeployment) -> None:
    await staff.create("ann@example.org")
    sessions = [await staff.session("ann@example.org") for _ in range(2)]
    link = await people.new_link(ADMINISTRATOR, staff.database, staff.clock, email="ann@example.org")
    signed_in = await staff.use_link(link.link_token, NEW)
    assert isinstance(signed_in, SignedIn)
    assert [await staff.is_alive(token) for token in [*sessions, signed_in.session_token]] == [False, False, True]
    with pytest.raises(Refused):
        await staff.sign_in("ann@example.org", PASSWORD)


@with_staff
async def test_a_link_does_not_replace_the_second_step(staff: StaffDeployment) -> None:
    """The password is set, and a code is still needed."""
    ann = await staff.create("ann@example.org")
    session_token = await staff.session(ann.id)
    app = await staff.set_up_app(ann)
    link = await people.new_link(ADMINISTRATOR, staff.database, staff.clock, email=ann.id)
    answer = await staff.use_link(link.link_token, NEW)
    assert isinstance(answer, SecondStep)
    assert not await staff.is_alive(session_token)
    staff.clock.advance(30)
    signed_in = await staff.second_step(answer.ticket, app.code(staff.clock))
    assert signed_in.person.has_two_step


@with_staff
async def test_an_administrators_link_can_turn_two_step_off(staff: StaffDeployment) -> None:
    """It is off once the link is used: making the link does not help somebody who knows only the password."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    link = await people.new_link(ADMINISTRATOR, staff.database, staff.clock, email=ann.id, without_two_step=True)
    assert isinstance(await staff.sign_in(ann.id), SecondStep)
    signed_in = await staff.use_link(link.link_token, NEW)
    assert isinstance(signed_in, SignedIn)
    assert not signed_in.person.has_two_step
    assert isinstance(await staff.sign_in(ann.id, NEW), SignedIn)
    # Recovery codes of the lost app do not work once another app is set up.
    staff.clock.advance(30)
    await staff.set_up_app(ann, NEW)
    answer = await staff.sign_in(ann.id, NEW)
    assert isinstance(answer, SecondStep)
    with pytest.raises(Refused):
        await staff.second_step(answer.ticket, app.recovery_codes[0])


@with_staff
async def test_the_audit_records_who_signed_in_and_how(staff: StaffDeployment) -> None:
    """It holds the person and the source address, never the token or the password."""
    link = await staff.invite("ann@example.org")
    await staff.use_link(link.link_token)
    rows = (await audit_rows(staff.database))[-2:]
    assert [(row.actor, row.source_ip, row.action, row.detail.get("by")) for row in rows] == [
        ("person ann@example.org", HERE, "person.password", "link"),
        ("person ann@example.org", HERE, "person.sign_in", "link"),
    ]
    assert PASSWORD not in repr(rows)


@with_staff
async def test_a_busy_server_leaves_the_link_valid(staff: StaffDeployment) -> None:
    link = await staff.invite("ann@example.org")
    staff.hashing = CountingHashing(CHEAP, max_concurrent=1, max_waiting=-1)
    with pytest.raises(RateLimited):
        await links.use_link(
            ADMINISTRATOR, staff.stores, link_token=link.link_token, password=PASSWORD, user_agent=BROWSER
        )
    staff.hashing = CountingHashing()
    assert isinstance(await staff.use_link(link.link_token), SignedIn)
