"""What can be a password, and how somebody changes his own."""

import dataclasses
import unicodedata

import pytest

from stoplist.errors import Forbidden, RateLimited, Refused
from stoplist.staff import passwords, people
from stoplist.staff.model import SignedIn
from stoplist.staff.passwords import checked_password, typed_password
from tests.builders import ADMINISTRATOR, audit_rows, value
from tests.staff.staff_fixture import CHEAP, PASSWORD, CountingHashing, Office, in_an_office

NEW = "another password of mine"
WRONG = "not the password at all"


@pytest.mark.parametrize("text", ["x" * 12, "x" * 128, "🙂" * 12, " " * 12, "e\u0301" * 128])
def test_twelve_to_a_hundred_and_twenty_eight_characters_make_a_password(text: str) -> None:
    """Of any kind. Source: docs/interface.md section D11."""
    assert checked_password(text, field="new") == unicodedata.normalize("NFC", text).encode()


@pytest.mark.parametrize("text", ["", "x" * 11, "x" * 129, "e\u0301" * 11, "🙂" * 129, "x" * 1_000_000])
def test_fewer_and_more_make_none(text: str) -> None:
    """Counted as they are compared."""
    with pytest.raises(Refused, match="12 to 128") as failure:
        checked_password(text, field="new")
    assert failure.value.field == "new"


def test_half_a_character_makes_no_password() -> None:
    """It could be neither stored nor typed again."""
    with pytest.raises(Refused, match="no character"):
        checked_password("x" * 12 + "\ud800", field="new")
    assert typed_password("x" * 12 + "\ud800") is None


def test_a_letter_is_the_same_however_the_keyboard_writes_it() -> None:
    """NFC (RFC 8265 section 4.2)."""
    assert typed_password("cafe\u0301") == typed_password("caf\u00e9")
    assert typed_password("Password") != typed_password("password")


@in_an_office
async def test_a_changed_password_ends_the_other_sessions_and_links(office: Office) -> None:
    """The one that asks stays."""
    ann = await office.hire("ann@example.org")
    others = [await office.session(ann.id) for _ in range(2)]
    mine = await office.session(ann.id)
    await people.new_link(ADMINISTRATOR, office.database, office.clock, email=ann.id)
    person = await passwords.change_password(ann, office.stores, session_token=mine, current=PASSWORD, new=NEW)
    assert person.email == ann.id
    assert [await office.is_alive(token) for token in (*others, mine)] == [False, False, True]
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sign_in_links") == 0
    assert isinstance(await office.sign_in(ann.id, NEW), SignedIn)
    with pytest.raises(Refused):
        await office.sign_in(ann.id, PASSWORD)
    rows = [row for row in await audit_rows(office.database) if row.action == "person.password"]
    assert [(row.actor, row.target, row.detail) for row in rows] == [
        ("person ann@example.org", ann.id, {"by": "link"}),
        ("person ann@example.org", ann.id, {"by": "password"}),
    ]


@in_an_office
async def test_wrong_present_passwords_count_like_failed_sign_ins(office: Office) -> None:
    """Whoever finds an open browser cannot go on guessing, and changes nothing."""
    ann = await office.hire("ann@example.org")
    mine = await office.session(ann.id)
    for _ in range(10):
        with pytest.raises(Refused) as failure:
            await passwords.change_password(ann, office.stores, session_token=mine, current=WRONG, new=NEW)
        assert failure.value.field == "current"
    with pytest.raises(RateLimited):
        await passwords.change_password(ann, office.stores, session_token=mine, current=PASSWORD, new=NEW)
    with pytest.raises(RateLimited):
        await office.sign_in(ann.id)
    office.clock.advance(900)
    assert isinstance(await office.sign_in(ann.id), SignedIn)


@in_an_office
async def test_a_password_is_changed_by_its_own_living_session(office: Office) -> None:
    """Not by another's, an ended one or none; and a new one that is none is refused beside its field."""
    ann, bob = await office.hire("ann@example.org"), await office.hire("bob@example.org")
    mine = await office.session(ann.id)
    with pytest.raises(Refused) as failure:
        await passwords.change_password(ann, office.stores, session_token=mine, current=PASSWORD, new="short")
    assert failure.value.field == "new"
    for actor, token in ((bob, mine), (ann, ""), (ADMINISTRATOR, mine)):
        with pytest.raises((Forbidden, Refused)):
            await passwords.change_password(actor, office.stores, session_token=token, current=PASSWORD, new=NEW)
    office.clock.advance(43_200)
    with pytest.raises(Forbidden, match="sign in again"):
        await passwords.change_password(ann, office.stores, session_token=mine, current=PASSWORD, new=NEW)
    assert isinstance(await office.sign_in(ann.id), SignedIn)


@in_an_office
async def test_an_old_hash_is_made_anew_by_whoever_signs_in(office: Office) -> None:
    """With the parameters of this release; a second one changes nothing."""
    await office.hire("ann@example.org")
    old = await value(office.database, "SELECT password_hash FROM people")
    stronger = office.hashing = CountingHashing(dataclasses.replace(CHEAP, time_cost=2))
    await office.session("ann@example.org")
    new = await value(office.database, "SELECT password_hash FROM people")
    assert new != old
    assert not stronger.is_outdated(new)
    await office.session("ann@example.org")
    assert await value(office.database, "SELECT password_hash FROM people") == new
