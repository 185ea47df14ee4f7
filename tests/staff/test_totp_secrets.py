"""TOTP secrets are stored encrypted, and every start encrypts them under the first secret key."""

import asyncio
import re
from pathlib import Path

import pytest

from stoplist.db.encrypted_column import SLICE_ROWS
from stoplist.errors import Refused, SettingsError
from stoplist.staff import people
from stoplist.staff.totp_secrets import renew_encryption, unreadable_secrets
from tests.builders import ADMINISTRATOR, contents, execute, migrated, sql, value
from tests.staff.staff_fixture import SECRET_KEY, StaffDeployment, with_staff

NEW_KEY = "a key that replaces the former one, quite soon"
CLEAR = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"


async def stored(staff: StaffDeployment, email: str) -> str:
    return str(await value(staff.database, f"SELECT totp_secret FROM people WHERE email = '{email}'"))  # noqa: S608


@with_staff
async def test_the_database_does_not_hold_the_secret(staff: StaffDeployment) -> None:
    """No table does, and a code made with the secret still signs in."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    assert app.secret not in repr(await contents(staff.database, "people", "recovery_codes", "audit"))
    staff.clock.advance(30)
    assert await staff.second_step(await staff.ticket(ann.id), app.code(staff.clock))


@with_staff
async def test_a_secret_moved_to_another_person_cannot_be_read(staff: StaffDeployment) -> None:
    """Each is bound to its person."""
    ann, bob = await staff.create("ann@example.org"), await staff.create("bob@example.org")
    app = await staff.set_up_app(ann)
    await staff.set_up_app(bob)
    await execute(
        staff.database,
        "UPDATE people SET totp_secret = (SELECT totp_secret FROM people WHERE email = 'ann@example.org')"
        " WHERE email = 'bob@example.org'",
    )
    staff.clock.advance(30)
    ticket = await staff.ticket(bob.id)
    with pytest.raises(Refused):
        await staff.second_step(ticket, app.code(staff.clock))
    assert await unreadable_secrets(staff.database, [SECRET_KEY]) == [bob.id]


@with_staff
async def test_the_start_encrypts_what_an_older_program_stored(staff: StaffDeployment) -> None:
    """It does so in slices; until then a secret in clear works as before. Repeating it changes nothing."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    await execute(
        staff.database, "UPDATE people SET totp_secret = :secret WHERE email = :email", secret=app.secret, email=ann.id
    )
    staff.clock.advance(30)
    assert await staff.second_step(await staff.ticket(ann.id), app.code(staff.clock))
    for number in range(SLICE_ROWS + 5):
        await execute(
            staff.database,
            "INSERT INTO people (email, is_administrator, is_disabled, totp_secret, created_ms)"
            " VALUES (:email, 0, 0, :secret, 0)",
            email=f"person-{number}@example.org",
            secret=CLEAR,
        )
    await renew_encryption(staff.database, [SECRET_KEY])
    before = await contents(staff.database, "people")
    rows = await staff.database.all(sql("SELECT totp_secret FROM people"))
    assert len(rows) == SLICE_ROWS + 6
    assert all(re.fullmatch(r"enc1\.[A-Za-z0-9_=-]{80}", row["totp_secret"]) for row in rows)
    await renew_encryption(staff.database, [SECRET_KEY])
    assert await contents(staff.database, "people") == before
    staff.clock.advance(30)
    assert await staff.second_step(await staff.ticket(ann.id), app.code(staff.clock))


def test_no_secret_remains_in_unused_parts_of_the_file(sqlite_url: str, tmp_path: Path) -> None:
    """A longer text replaces each, so that SQLite moves rows about within their page."""

    async def store_and_encrypt() -> None:
        async with migrated(sqlite_url) as database:
            for number in range(40):
                await execute(
                    database,
                    "INSERT INTO people (email, is_administrator, is_disabled, totp_secret, created_ms)"
                    " VALUES (:email, 0, 0, :secret, 0)",
                    email=f"person-{number}@example.org",
                    secret=CLEAR,
                )
            await renew_encryption(database, [SECRET_KEY])

    asyncio.run(store_and_encrypt())
    assert CLEAR[8:].encode() not in (tmp_path / "stoplist.db").read_bytes()


@with_staff
async def test_a_new_first_key_takes_the_secrets_over(staff: StaffDeployment) -> None:
    """Second on all hosts, then first, then alone: a code signs in at every stage."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    for secret_keys in ((SECRET_KEY, NEW_KEY), (NEW_KEY, SECRET_KEY), (NEW_KEY,)):
        await renew_encryption(staff.database, secret_keys)
        staff.secret_keys = secret_keys
        staff.clock.advance(30)
        assert await staff.second_step(await staff.ticket(ann.id), app.code(staff.clock))


@with_staff
async def test_keys_that_cannot_read_a_secret_are_refused(staff: StaffDeployment) -> None:
    """The refusal names the person and the way on, and leaves all secrets as they were."""
    ann, bob = await staff.create("ann@example.org"), await staff.create("bob@example.org")
    for person in (ann, bob):
        await staff.set_up_app(person)
    await execute(
        staff.database, "UPDATE people SET totp_secret = :secret WHERE email = :email", secret=CLEAR, email=bob.id
    )
    before = await contents(staff.database, "people")
    with pytest.raises(SettingsError) as failure:
        await renew_encryption(staff.database, [NEW_KEY])
    assert ann.id in failure.value.text
    assert bob.id not in failure.value.text
    assert "`stoplist user link EMAIL --without-two-step`" in failure.value.text
    assert await contents(staff.database, "people") == before


@with_staff
async def test_a_lost_key_is_overcome_before_the_start(staff: StaffDeployment) -> None:
    """The link gives the secret up; until it is used, the recovery codes are still needed, and still good."""
    ann = await staff.create("ann@example.org")
    app = await staff.set_up_app(ann)
    link = await people.new_link(
        ADMINISTRATOR,
        staff.database,
        staff.clock,
        email=ann.id,
        without_two_step=True,
        secret_keys=(NEW_KEY,),
    )
    await renew_encryption(staff.database, [NEW_KEY])
    staff.secret_keys = (NEW_KEY,)
    staff.clock.advance(30)
    ticket = await staff.ticket(ann.id)
    with pytest.raises(Refused):
        await staff.second_step(ticket, app.code(staff.clock))
    assert await staff.second_step(ticket, app.recovery_codes[0])
    await staff.use_link(link.link_token)
    assert not (await staff.person(ann.id)).has_two_step


@with_staff
async def test_a_readable_secret_is_not_given_up(staff: StaffDeployment) -> None:
    """Nor is one if no key is known, which proves nothing."""
    ann = await staff.create("ann@example.org")
    await staff.set_up_app(ann)
    before = await stored(staff, ann.id)
    for secret_keys in ((), (SECRET_KEY,), (NEW_KEY, SECRET_KEY)):
        await people.new_link(
            ADMINISTRATOR,
            staff.database,
            staff.clock,
            email=ann.id,
            without_two_step=True,
            secret_keys=secret_keys,
        )
        assert await stored(staff, ann.id) == before
