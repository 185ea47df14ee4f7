"""Two-step sign-in is turned on with a code and the password, and off with the password."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from stoplist.errors import Missing, RateLimited, Refused
from stoplist.staff import people, two_step
from stoplist.staff.model import SecondStep, SignedIn
from tests.builders import ADMINISTRATOR, audit_rows, contents
from tests.fakes import FakeClock
from tests.staff.staff_fixture import PASSWORD, App, StaffDeployment, with_staff

pytestmark = pytest.mark.interpreter

WRONG = "not the password at all"


def test_an_enrolment_names_the_person_and_the_issuer() -> None:
    """Its secret is given as text and in the address for the QR code."""
    enrolment = two_step.begin("ann+x@example.org")
    parts = urlsplit(enrolment.uri)
    assert (parts.scheme, parts.netloc, parts.path) == ("otpauth", "totp", "/Stoplist:ann%2Bx%40example.org")
    assert parse_qs(parts.query) == {"secret": [enrolment.secret], "issuer": ["Stoplist"]}
    assert two_step.provisioning_uri(enrolment.secret, "ann+x@example.org") == enrolment.uri
    assert two_step.begin("ann+x@example.org").secret != enrolment.secret


def test_codes_are_those_of_rfc_6238() -> None:
    """Appendix B, SHA-1, at 59 s and at 1 111 111 109 s; the last six digits."""
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    assert two_step.matching_step(secret, "287082", 59_000) == 1
    assert two_step.matching_step(secret, "081804", 1_111_111_109_000) == 37_037_036
    assert two_step.matching_step(secret, "287 082", 59_000) == 1
    assert two_step.matching_step(secret, "287083", 59_000) is None


@with_staff
async def test_turning_on_needs_a_correct_code(staff: StaffDeployment) -> None:
    """A wrong code or a tampered form has no effect."""
    ann = await staff.create("ann@example.org")
    app = App(two_step.begin(ann.id).secret, [])
    good = app.code(staff.clock)
    for secret, code in ((app.secret, _other(good)), (app.secret, ""), ("A" * 31, good), ("", ""), ("\0" * 32, good)):
        with pytest.raises(Refused) as failure:
            await two_step.turn_on(ann, staff.stores, secret=secret, code=code, password=PASSWORD)
        assert failure.value.field == "code"
    assert isinstance(await staff.sign_in(ann.id), SignedIn)


@with_staff
async def test_turning_on_needs_the_password(staff: StaffDeployment) -> None:
    """Somebody at an unattended browser could otherwise lock its owner out with another app."""
    ann = await staff.create("ann@example.org")
    app = App(two_step.begin(ann.id).secret, [])
    code = app.code(staff.clock)
    with pytest.raises(Refused) as failure:
        await two_step.turn_on(ann, staff.stores, secret=app.secret, code=code, password="a guess of somebody")
    assert failure.value.field == "password"
    assert isinstance(await staff.sign_in(ann.id), SignedIn)


@with_staff
async def test_turning_on_gives_ten_recovery_codes(staff: StaffDeployment) -> None:
    """They are shown once, and stored only as hashes."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    assert len(set(app.recovery_codes)) == 10
    assert all(re.fullmatch(r"([a-z2-7]{4}-){3}[a-z2-7]{4}", code) for code in app.recovery_codes)
    assert (await staff.person(ann.id)).has_two_step
    stored = repr(await contents(staff.database, "recovery_codes", "audit"))
    assert not any(code in stored or code.replace("-", "") in stored for code in app.recovery_codes)
    assert app.secret not in stored
    with pytest.raises(Refused, match="on already"):
        await staff.set_up_app(ann)


@with_staff
async def test_turning_off_needs_the_password(staff: StaffDeployment) -> None:
    """Wrong passwords count like failed sign-ins."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    for password in (WRONG, ""):
        with pytest.raises(Refused) as failure:
            await two_step.turn_off(ann, staff.stores, password=password)
        assert failure.value.field == "password"
    assert isinstance(await staff.sign_in(ann.id), SecondStep)
    await two_step.turn_off(ann, staff.stores, password=PASSWORD)
    assert isinstance(await staff.sign_in(ann.id), SignedIn)
    assert await contents(staff.database, "recovery_codes") == {"recovery_codes": []}
    staff.clock.advance(30)
    await staff.set_up_app(ann)
    with pytest.raises(Refused):
        await staff.second_step(await staff.ticket(ann.id), app.recovery_codes[0])
    for _ in range(7):
        with pytest.raises(Refused):
            await two_step.turn_off(ann, staff.stores, password=WRONG)
    with pytest.raises(RateLimited):
        await two_step.turn_off(ann, staff.stores, password=PASSWORD)


@with_staff
async def test_new_recovery_codes_replace_the_old_ones(staff: StaffDeployment) -> None:
    """They need the password, and two-step sign-in must be on."""
    ann = await staff.create("ann@example.org")
    with pytest.raises(Refused, match="is off"):
        await two_step.new_recovery_codes(ann, staff.stores, password=PASSWORD)
    app = await staff.set_up_app(ann)
    with pytest.raises(Refused):
        await two_step.new_recovery_codes(ann, staff.stores, password=WRONG)
    codes = await two_step.new_recovery_codes(ann, staff.stores, password=PASSWORD)
    assert len(set(codes)) == 10
    with pytest.raises(Refused):
        await staff.second_step(await staff.ticket(ann.id), app.recovery_codes[0])
    assert await staff.second_step(await staff.ticket(ann.id), codes[0])


@with_staff
async def test_nothing_changes_after_an_outdated_check(staff: StaffDeployment) -> None:
    """Somebody who knows a former password, or is disabled meanwhile, turns nothing on or off and gets no codes."""
    ann, bob = await staff.create("ann@example.org"), await staff.create("bob@example.org")
    await staff.set_up_app(ann)
    for person, operation in (
        (bob, lambda: staff.set_up_app(bob)),
        (ann, lambda: two_step.new_recovery_codes(ann, staff.stores, password=PASSWORD)),
        (ann, lambda: two_step.turn_off(ann, staff.stores, password=PASSWORD)),
    ):
        for change in await staff.changes_that_outdate_a_check(person.id):
            staff.hashing.meanwhile = change
            with pytest.raises(Refused, match="not your password"):
                await operation()
            staff.hashing.meanwhile = None
        await people.enable_person(ADMINISTRATOR, staff.database, staff.clock, email=person.id)
    assert [(await staff.person(person.id)).has_two_step for person in (ann, bob)] == [True, False]


@with_staff
async def test_each_change_is_in_the_audit(staff: StaffDeployment) -> None:
    """The entry has the person as the actor, and neither secret nor code."""
    ann = await staff.create("ann@example.org")
    await staff.set_up_app(ann)
    await two_step.new_recovery_codes(ann, staff.stores, password=PASSWORD)
    await two_step.turn_off(ann, staff.stores, password=PASSWORD)
    rows = [row for row in await audit_rows(staff.database) if row.action == "person.two_step"]
    assert [row.detail for row in rows] == [{"is_on": True}, {"are_codes_new": True}, {"is_on": False}]
    assert {(row.actor, row.target) for row in rows} == {("person ann@example.org", ann.id)}


@with_staff
async def test_only_people_have_two_step_sign_in(staff: StaffDeployment) -> None:
    """The command line has no account."""
    secret = two_step.begin("x").secret
    code = App(secret, []).code(staff.clock)
    with pytest.raises(Missing):
        await two_step.turn_on(ADMINISTRATOR, staff.stores, secret=secret, code=code, password=PASSWORD)
    with pytest.raises(Missing):
        await two_step.turn_off(ADMINISTRATOR, staff.stores, password=PASSWORD)


def test_a_code_of_two_steps_counts_as_the_later_one() -> None:
    """So the same code is not accepted for the other step either."""
    clock = FakeClock()
    secret = two_step.begin("x").secret
    now_step = clock.now_ms() // 30_000
    for steps in (-1, 0, 1):
        step = two_step.matching_step(secret, App(secret, []).code(clock, steps=steps), clock.now_ms())
        assert step is not None
        assert step >= now_step + steps


def _other(code: str) -> str:
    """Return a code that is none of the three accepted ones."""
    return "".join(str((int(digit) + 5) % 10) for digit in code)
