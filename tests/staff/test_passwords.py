"""Acceptable passwords, and the change of one's own."""

import dataclasses
import unicodedata

import pytest

from stoplist.errors import Forbidden, RateLimited, Refused
from stoplist.staff import passwords, people
from stoplist.staff.model import SignedIn
from stoplist.staff.password_strength import is_guessable
from stoplist.staff.passwords import checked_password, normalized_password
from tests.builders import ADMINISTRATOR, audit_rows, value
from tests.staff.staff_fixture import CHEAP, PASSWORD, CountingHashing, StaffDeployment, with_staff

NEW = "another password of mine"
WRONG = "not the password at all"


@pytest.mark.parametrize("text", ["x" * 12, "x" * 128, "🙂" * 12, " " * 12, "e\u0301" * 128])
def test_a_password_has_12_to_128_characters(text: str) -> None:
    """Any characters. Source: docs/interface.md section D11."""
    assert checked_password(text, field="new") == unicodedata.normalize("NFC", text).encode()


@pytest.mark.parametrize("text", ["", "x" * 11, "x" * 129, "e\u0301" * 11, "🙂" * 129, "x" * 1_000_000])
def test_shorter_and_longer_passwords_are_refused(text: str) -> None:
    """Characters are counted in the form in which passwords are compared."""
    with pytest.raises(Refused, match="12 to 128") as failure:
        checked_password(text, field="new")
    assert failure.value.field == "new"


def test_a_lone_surrogate_is_refused() -> None:
    """It could be neither stored nor typed again."""
    with pytest.raises(Refused, match="invalid character"):
        checked_password("x" * 12 + "\ud800", field="new")
    assert normalized_password("x" * 12 + "\ud800") is None


@pytest.mark.parametrize(
    "text",
    [
        "password1234",
        "P@ssw0rd1234",
        "qwertyuiop[]",
        "123456789012",
        "aaaaaaaaaaaa",
        "monkeymonkey",
        "ы" * 12,
        "jordanjordan",
        "Jordan123456",
        "stoplist1234",
        "x" * 128,
        "4@8({[</369&#!1/" * 8,
    ],
)
def test_common_passwords_and_patterns_are_guessable(text: str) -> None:
    """So are parts of the person's address with little beside them. The slowest text is judged by its beginning."""
    assert is_guessable(text, "jordan@examples.org") == (not text.startswith("4@8"))


@pytest.mark.parametrize("text", [PASSWORD, NEW, "x9$kLqPz7!wR", "длинный пароль слов"])
def test_a_few_words_are_not_guessable(text: str) -> None:
    assert not is_guessable(text, "jordan@examples.org")


@with_staff
async def test_a_guessable_password_is_refused(staff: StaffDeployment) -> None:
    """A link, which stays good, and a change refuse it; and one that holds the address, in any case."""
    link = await staff.invite("ann@example.org")
    for text, words in (("password1234", "easy to guess"), ("x9$kLqPz7! Ann@Example.ORG", "your e-mail address")):
        with pytest.raises(Refused, match=words) as failure:
            await staff.use_link(link.link_token, text)
        assert failure.value.field == "password"
    await staff.use_link(link.link_token)
    session_token, ann = await staff.session("ann@example.org"), await staff.actor("ann@example.org")
    for text, words in (("password1234", "easy to guess"), ("x9$kLqPz7! Ann@Example.ORG", "your e-mail address")):
        with pytest.raises(Refused, match=words) as failure:
            await passwords.change_password(ann, staff.stores, session_token=session_token, current=PASSWORD, new=text)
        assert failure.value.field == "new"


def test_passwords_are_compared_in_nfc() -> None:
    """Keyboards write the same letter in different ways (RFC 8265 section 4.2)."""
    assert normalized_password("cafe\u0301") == normalized_password("caf\u00e9")
    assert normalized_password("Password") != normalized_password("password")


@with_staff
async def test_a_changed_password_ends_other_sessions_and_links(staff: StaffDeployment) -> None:
    """The session that changes it stays active."""
    ann = await staff.create("ann@example.org")
    others = [await staff.session(ann.id) for _ in range(2)]
    mine = await staff.session(ann.id)
    await people.new_link(ADMINISTRATOR, staff.database, staff.clock, email=ann.id)
    person = await passwords.change_password(ann, staff.stores, session_token=mine, current=PASSWORD, new=NEW)
    assert person.email == ann.id
    assert [await staff.is_alive(token) for token in (*others, mine)] == [False, False, True]
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sign_in_links") == 0
    assert isinstance(await staff.sign_in(ann.id, NEW), SignedIn)
    with pytest.raises(Refused):
        await staff.sign_in(ann.id, PASSWORD)
    rows = [row for row in await audit_rows(staff.database) if row.action == "person.password"]
    assert [(row.actor, row.target, row.detail) for row in rows] == [
        ("person ann@example.org", ann.id, {"by": "link"}),
        ("person ann@example.org", ann.id, {"by": "password"}),
    ]


@with_staff
async def test_wrong_current_passwords_count_like_failed_sign_ins(staff: StaffDeployment) -> None:
    """Somebody at an unattended browser cannot go on guessing, and changes nothing."""
    ann = await staff.create("ann@example.org")
    mine = await staff.session(ann.id)
    for _ in range(10):
        with pytest.raises(Refused) as failure:
            await passwords.change_password(ann, staff.stores, session_token=mine, current=WRONG, new=NEW)
        assert failure.value.field == "current"
    with pytest.raises(RateLimited):
        await passwords.change_password(ann, staff.stores, session_token=mine, current=PASSWORD, new=NEW)
    with pytest.raises(RateLimited):
        await staff.sign_in(ann.id)
    staff.clock.advance(900)
    assert isinstance(await staff.sign_in(ann.id), SignedIn)


@with_staff
async def test_a_password_is_changed_by_its_own_active_session(staff: StaffDeployment) -> None:
    """Other, ended and unknown sessions are refused, and an unacceptable new password names its field."""
    ann, bob = await staff.create("ann@example.org"), await staff.create("bob@example.org")
    mine = await staff.session(ann.id)
    with pytest.raises(Refused) as failure:
        await passwords.change_password(ann, staff.stores, session_token=mine, current=PASSWORD, new="short")
    assert failure.value.field == "new"
    for actor, token in ((bob, mine), (ann, ""), (ADMINISTRATOR, mine)):
        with pytest.raises((Forbidden, Refused)):
            await passwords.change_password(actor, staff.stores, session_token=token, current=PASSWORD, new=NEW)
    staff.clock.advance(43_200)
    with pytest.raises(Forbidden, match="Sign in again"):
        await passwords.change_password(ann, staff.stores, session_token=mine, current=PASSWORD, new=NEW)
    assert isinstance(await staff.sign_in(ann.id), SignedIn)


@with_staff
async def test_no_password_changes_after_an_outdated_check(staff: StaffDeployment) -> None:
    """Somebody who knows a former password, or is disabled meanwhile, changes nothing."""
    ann = await staff.create("ann@example.org")
    for change in await staff.changes_that_outdate_a_check(ann.id):
        mine = await staff.session(ann.id)
        staff.hashing.meanwhile = change
        with pytest.raises(Refused, match="not your password"):
            await passwords.change_password(ann, staff.stores, session_token=mine, current=PASSWORD, new=NEW)
        staff.hashing.meanwhile = None
    await people.enable_person(ADMINISTRATOR, staff.database, staff.clock, email=ann.id)
    assert isinstance(await staff.sign_in(ann.id), SignedIn)


@with_staff
async def test_signing_in_replaces_an_outdated_hash(staff: StaffDeployment) -> None:
    """The new hash has the parameters of this release; a second sign-in changes nothing."""
    await staff.create("ann@example.org")
    old = await value(staff.database, "SELECT password_hash FROM people")
    stronger = staff.hashing = CountingHashing(dataclasses.replace(CHEAP, time_cost=2))
    await staff.session("ann@example.org")
    new = await value(staff.database, "SELECT password_hash FROM people")
    assert new != old
    assert not stronger.is_outdated(new)
    await staff.session("ann@example.org")
    assert await value(staff.database, "SELECT password_hash FROM people") == new
