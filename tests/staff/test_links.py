"""Links are good once, for a day, and are used by choosing a password, never by being looked at."""

import asyncio

import pytest

from stoplist import ids
from stoplist.errors import RateLimited, Refused
from stoplist.staff import links, people
from stoplist.staff.model import SecondStep, SignedIn
from tests.builders import ADMINISTRATOR, audit_rows
from tests.staff.staff_fixture import BROWSER, CHEAP, HERE, PASSWORD, CountingHashing, Office, in_an_office

NEW = "another password of mine"


class Together(CountingHashing):
    """Nobody's password is hashed before so many have found their link good: then all go on at once."""

    def __init__(self, how_many: int) -> None:
        super().__init__()
        self._left, self._all_are_here = how_many, asyncio.Event()

    async def hash(self, password: bytes) -> str:
        self._left -= 1
        if self._left == 0:
            self._all_are_here.set()
        await self._all_are_here.wait()
        return await super().hash(password)


@in_an_office
async def test_to_look_at_a_link_never_uses_it_up(office: Office) -> None:
    """Source: docs/interface.md section D11; programs that examine mail open what they find."""
    made = await office.invite("ann@example.org")
    for _ in range(3):
        assert await links.look_at_link(office.database, office.clock, made.link_token) == made.person
    signed_in = await office.use_link(made.link_token)
    assert isinstance(signed_in, SignedIn)
    assert signed_in.person.has_password
    assert signed_in.person.last_sign_in_ms == office.clock.now_ms()
    assert await office.is_alive(signed_in.session_token)
    assert await links.look_at_link(office.database, office.clock, made.link_token) is None


@in_an_office
async def test_of_many_who_use_a_link_at_once_one_gets_in(office: Office) -> None:
    """And his is the password."""
    made = await office.invite("ann@example.org")
    passwords = [f"the password of number {number}" for number in range(8)]
    office.hashing = Together(len(passwords))
    done = await asyncio.gather(
        *(office.use_link(made.link_token, password) for password in passwords), return_exceptions=True
    )
    office.hashing = CountingHashing()
    (winner,) = [at for at, one in enumerate(done) if isinstance(one, SignedIn)]
    assert all(
        isinstance(one, Refused) and one.text == links.DEAD_LINK for one in done if not isinstance(one, SignedIn)
    )
    assert isinstance(await office.sign_in("ann@example.org", passwords[winner]), SignedIn)
    with pytest.raises(Refused):
        await office.sign_in("ann@example.org", passwords[winner - 1])


@in_an_office
async def test_a_link_is_good_for_a_day(office: Office) -> None:
    """To the millisecond."""
    made = await office.invite("ann@example.org")
    office.clock.advance(86_399.999)
    assert await links.look_at_link(office.database, office.clock, made.link_token) is not None
    office.clock.advance(0.001)
    assert await links.look_at_link(office.database, office.clock, made.link_token) is None
    with pytest.raises(Refused, match="expired"):
        await office.use_link(made.link_token)


@in_an_office
async def test_what_is_no_link_is_refused_without_any_work(office: Office) -> None:
    """No password is hashed for it: a server that is too busy for that refuses it all the same."""
    office.hashing = CountingHashing(at_a_time=1, most_waiting=-1)
    unknown = ids.new_secret(ids.SIGN_IN_LINK)
    for link_token in ("", "svc_sl_", "svc_sl_" + "0" * 49, "\0", "ü", "\ud800", unknown):
        assert await links.look_at_link(office.database, office.clock, link_token) is None
        with pytest.raises(Refused, match="used already"):
            await office.use_link(link_token)


@in_an_office
async def test_a_password_that_is_none_leaves_the_link_good(office: Office) -> None:
    """The person types another one."""
    made = await office.invite("ann@example.org")
    for password in ("", "eleven char", "x" * 129, "x" * 10_000, "twelve chars\ud800"):
        with pytest.raises(Refused) as failure:
            await office.use_link(made.link_token, password)
        assert failure.value.field == "password"
    assert isinstance(await office.use_link(made.link_token), SignedIn)


@in_an_office
async def test_a_new_password_ends_every_session_and_link(office: Office) -> None:
    """Whoever had the old one is out."""
    await office.hire("ann@example.org")
    sessions = [await office.session("ann@example.org") for _ in range(2)]
    made = await people.new_link(ADMINISTRATOR, office.database, office.clock, email="ann@example.org")
    signed_in = await office.use_link(made.link_token, NEW)
    assert isinstance(signed_in, SignedIn)
    assert [await office.is_alive(token) for token in [*sessions, signed_in.session_token]] == [False, False, True]
    with pytest.raises(Refused):
        await office.sign_in("ann@example.org", PASSWORD)


@in_an_office
async def test_a_link_alone_does_not_pass_the_second_step(office: Office) -> None:
    """The password is new, and the code is asked for."""
    ann = await office.hire("ann@example.org")
    session_token = await office.session(ann.id)
    app = await office.set_up_app(ann)
    made = await people.new_link(ADMINISTRATOR, office.database, office.clock, email=ann.id)
    answer = await office.use_link(made.link_token, NEW)
    assert isinstance(answer, SecondStep)
    assert not await office.is_alive(session_token)
    office.clock.advance(30)
    signed_in = await office.second_step(answer.ticket, app.code(office.clock))
    assert signed_in.person.has_two_step


@in_an_office
async def test_an_administrator_takes_the_second_step_away_by_a_link(office: Office) -> None:
    """Once it is used, and not before: whoever knows the password alone gains nothing by its being made."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    made = await people.new_link(ADMINISTRATOR, office.database, office.clock, email=ann.id, without_two_step=True)
    assert isinstance(await office.sign_in(ann.id), SecondStep)
    signed_in = await office.use_link(made.link_token, NEW)
    assert isinstance(signed_in, SignedIn)
    assert not signed_in.person.has_two_step
    assert isinstance(await office.sign_in(ann.id, NEW), SignedIn)
    # What was written down for the lost app opens nothing when there is another one.
    office.clock.advance(30)
    await office.set_up_app(ann, NEW)
    answer = await office.sign_in(ann.id, NEW)
    assert isinstance(answer, SecondStep)
    with pytest.raises(Refused):
        await office.second_step(answer.ticket, app.recovery_codes[0])


@in_an_office
async def test_the_audit_tells_who_came_in_and_how(office: Office) -> None:
    """The person himself, from where; never the token or the password."""
    made = await office.invite("ann@example.org")
    await office.use_link(made.link_token)
    rows = (await audit_rows(office.database))[-2:]
    assert [(row.actor, row.source_ip, row.action, row.detail.get("by")) for row in rows] == [
        ("person ann@example.org", HERE, "person.password", "link"),
        ("person ann@example.org", HERE, "person.sign_in", "link"),
    ]
    assert PASSWORD not in repr(rows)


@in_an_office
async def test_a_busy_server_leaves_the_link_good(office: Office) -> None:
    """Nothing was done."""
    made = await office.invite("ann@example.org")
    office.hashing = CountingHashing(CHEAP, at_a_time=1, most_waiting=-1)
    with pytest.raises(RateLimited):
        await links.use_link(
            ADMINISTRATOR, office.stores, link_token=made.link_token, password=PASSWORD, user_agent=BROWSER
        )
    office.hashing = CountingHashing()
    assert isinstance(await office.use_link(made.link_token), SignedIn)
