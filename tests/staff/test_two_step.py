"""Codes besides the password: turned on with a code, off with the password."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from stoplist.errors import Missing, RateLimited, Refused
from stoplist.staff import two_step
from stoplist.staff.model import SecondStep, SignedIn
from tests.builders import ADMINISTRATOR, audit_rows, contents
from tests.fakes import FakeClock
from tests.staff.staff_fixture import PASSWORD, App, Office, in_an_office

WRONG = "not the password at all"


def test_an_app_is_told_who_and_where() -> None:
    """As text and as the address of a QR code."""
    enrolment = two_step.begin("ann+x@example.org")
    parts = urlsplit(enrolment.uri)
    assert (parts.scheme, parts.netloc, parts.path) == ("otpauth", "totp", "/Stoplist:ann%2Bx%40example.org")
    assert parse_qs(parts.query) == {"secret": [enrolment.secret], "issuer": ["Stoplist"]}
    assert two_step.uri_of(enrolment.secret, "ann+x@example.org") == enrolment.uri
    assert two_step.begin("ann+x@example.org").secret != enrolment.secret


def test_codes_are_those_of_rfc_6238() -> None:
    """Appendix B, SHA-1, at 59 s and at 1 111 111 109 s; the last six digits."""
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    assert two_step.step_of(secret, "287082", 59_000) == 1
    assert two_step.step_of(secret, "081804", 1_111_111_109_000) == 37_037_036
    assert two_step.step_of(secret, "287 082", 59_000) == 1
    assert two_step.step_of(secret, "287083", 59_000) is None


@in_an_office
async def test_nothing_holds_before_a_code_was_seen(office: Office) -> None:
    """A wrong code, or a page that was tampered with, turns nothing on."""
    ann = await office.hire("ann@example.org")
    app = App(two_step.begin(ann.id).secret, [])
    good = app.code(office.clock)
    for secret, code in ((app.secret, _other(good)), (app.secret, ""), ("A" * 31, good), ("", ""), ("\0" * 32, good)):
        with pytest.raises(Refused) as failure:
            await two_step.turn_on(ann, office.stores, secret=secret, code=code, password=PASSWORD)
        assert failure.value.field == "code"
    assert isinstance(await office.sign_in(ann.id), SignedIn)


@in_an_office
async def test_an_open_browser_does_not_turn_it_on(office: Office) -> None:
    """Whoever finds one could lock its owner out with an app of his own: the password is asked for."""
    ann = await office.hire("ann@example.org")
    app = App(two_step.begin(ann.id).secret, [])
    code = app.code(office.clock)
    with pytest.raises(Refused) as failure:
        await two_step.turn_on(ann, office.stores, secret=app.secret, code=code, password="a guess of somebody")
    assert failure.value.field == "password"
    assert isinstance(await office.sign_in(ann.id), SignedIn)


@in_an_office
async def test_turned_on_it_comes_with_ten_recovery_codes(office: Office) -> None:
    """Shown once, and kept as hashes alone."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    assert len(set(app.recovery_codes)) == 10
    assert all(re.fullmatch(r"([a-z2-7]{4}-){3}[a-z2-7]{4}", code) for code in app.recovery_codes)
    assert (await office.person(ann.id)).has_two_step
    stored = repr(await contents(office.database, "recovery_codes", "audit"))
    assert not any(code in stored or code.replace("-", "") in stored for code in app.recovery_codes)
    assert app.secret not in stored
    with pytest.raises(Refused, match="on already"):
        await office.set_up_app(ann)


@in_an_office
async def test_it_is_turned_off_with_the_password(office: Office) -> None:
    """An open browser alone is not enough, and wrong guesses count."""
    ann = await office.hire("ann@example.org")
    app = await office.set_up_app(ann)
    for password in (WRONG, ""):
        with pytest.raises(Refused) as failure:
            await two_step.turn_off(ann, office.stores, password=password)
        assert failure.value.field == "password"
    assert isinstance(await office.sign_in(ann.id), SecondStep)
    await two_step.turn_off(ann, office.stores, password=PASSWORD)
    assert isinstance(await office.sign_in(ann.id), SignedIn)
    assert await contents(office.database, "recovery_codes") == {"recovery_codes": []}
    office.clock.advance(30)
    await office.set_up_app(ann)
    with pytest.raises(Refused):
        await office.second_step(await office.ticket(ann.id), app.recovery_codes[0])
    for _ in range(7):
        with pytest.raises(Refused):
            await two_step.turn_off(ann, office.stores, password=WRONG)
    with pytest.raises(RateLimited):
        await two_step.turn_off(ann, office.stores, password=PASSWORD)


@in_an_office
async def test_new_recovery_codes_replace_the_old_ones(office: Office) -> None:
    """With the password, and where codes are asked for at all."""
    ann = await office.hire("ann@example.org")
    with pytest.raises(Refused, match="is off"):
        await two_step.new_recovery_codes(ann, office.stores, password=PASSWORD)
    app = await office.set_up_app(ann)
    with pytest.raises(Refused):
        await two_step.new_recovery_codes(ann, office.stores, password=WRONG)
    codes = await two_step.new_recovery_codes(ann, office.stores, password=PASSWORD)
    assert len(set(codes)) == 10
    with pytest.raises(Refused):
        await office.second_step(await office.ticket(ann.id), app.recovery_codes[0])
    assert await office.second_step(await office.ticket(ann.id), codes[0])


@in_an_office
async def test_each_change_is_in_the_audit(office: Office) -> None:
    """By the person himself; without secret or code."""
    ann = await office.hire("ann@example.org")
    await office.set_up_app(ann)
    await two_step.new_recovery_codes(ann, office.stores, password=PASSWORD)
    await two_step.turn_off(ann, office.stores, password=PASSWORD)
    rows = [row for row in await audit_rows(office.database) if row.action == "person.two_step"]
    assert [row.detail for row in rows] == [{"is_on": True}, {"are_codes_new": True}, {"is_on": False}]
    assert {(row.actor, row.target) for row in rows} == {("person ann@example.org", ann.id)}


@in_an_office
async def test_only_people_have_apps(office: Office) -> None:
    """A command line is nobody's account."""
    secret = two_step.begin("x").secret
    code = App(secret, []).code(office.clock)
    with pytest.raises(Missing):
        await two_step.turn_on(ADMINISTRATOR, office.stores, secret=secret, code=code, password=PASSWORD)
    with pytest.raises(Missing):
        await two_step.turn_off(ADMINISTRATOR, office.stores, password=PASSWORD)


def test_the_later_of_two_steps_is_used_up() -> None:
    """Where a code is that of two steps, neither is good again."""
    clock = FakeClock()
    secret = two_step.begin("x").secret
    now_step = clock.now_ms() // 30_000
    for steps in (-1, 0, 1):
        step = two_step.step_of(secret, App(secret, []).code(clock, steps=steps), clock.now_ms())
        assert step is not None
        assert step >= now_step + steps


def _other(code: str) -> str:
    """A code that is none of the three that are good."""
    return "".join(str((int(digit) + 5) % 10) for digit in code)
