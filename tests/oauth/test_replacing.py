"""A form sent twice creates one key, or rotates one secret; a replacement has the rights of the replaced key."""

import asyncio
from typing import Any

import pytest

from stoplist import ids
from stoplist.actor import ADMIN, Actor
from stoplist.db import Database
from stoplist.errors import AlreadyMade, Forbidden, Refused
from stoplist.oauth import credentials, replacement
from stoplist.oauth.ceilings import set_ceilings
from stoplist.oauth.credentials import NewCredential, list_credentials, show_credential
from stoplist.oauth.model import Credential
from stoplist.organizations.organizations import close_organization
from tests.builders import (
    ADMINISTRATOR,
    audit_rows,
    authenticates,
    find_bearer,
    make_key,
    make_organization,
    make_token,
    migrated,
    on_each_database,
    opened,
    refused,
)
from tests.deployment import in_own_loop
from tests.fakes import FakeClock

ZOE = Actor(kind="person", id="zoe@example.org", roles={"acme": ADMIN})
MADE_ID = f"{ids.CLIENT_ID}{7:022}"


async def replace(
    database: Database, clock: FakeClock, client_id: str, *, actor: Actor = ADMINISTRATOR, **options: Any
) -> NewCredential:
    return await replacement.replace_credential(actor, database, clock, client_id=client_id, **options)


# Created once


@on_each_database
async def test_a_form_that_is_sent_twice_creates_one_key(database: Database, clock: FakeClock) -> None:
    """The form names the new key; the second time nothing is created, and the first secret stays valid."""
    await make_organization(database, clock)
    key = await make_key(database, clock, client_id=MADE_ID)
    assert key.credential.client_id == MADE_ID
    with pytest.raises(AlreadyMade, match="already sent"):
        await make_key(database, clock, client_id=MADE_ID, label="other")
    with pytest.raises(AlreadyMade, match="already sent"):
        await replace(database, clock, MADE_ID, new_client_id=MADE_ID)
    assert await list_credentials(ADMINISTRATOR, database) == [key.credential]
    assert await authenticates(database, key)


@in_own_loop
async def test_concurrent_forms_create_one_key(database_url: str, clock: FakeClock) -> None:
    """Two processes, ten forms: one key and one audit row; the others are refused."""
    async with migrated(database_url) as one, opened(database_url) as other:
        await make_organization(one, clock)
        tries = [make_key((one, other)[turn % 2], clock, client_id=MADE_ID) for turn in range(10)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        [made] = [answer for answer in answers if isinstance(answer, NewCredential)]
        assert {type(answer) for answer in answers if answer is not made} == {AlreadyMade}
        assert await authenticates(one, made)
        assert [row.action for row in await audit_rows(one)] == ["organization.create", "key.create"]


@on_each_database
async def test_a_malformed_id_in_the_form_is_refused(database: Database, clock: FakeClock) -> None:
    """A person who edits the form cannot choose another kind of id."""
    await make_organization(database, clock)
    key = await make_key(database, clock)
    for odd in ("", "x", "svc_ci_", MADE_ID + "0", MADE_ID + "\n", MADE_ID[:-1] + "\0", f"svc_ci_{'é' * 22}"):
        await refused(database, make_key(database, clock, client_id=odd), "Open the page again")
        copy = replace(database, clock, key.credential.client_id, new_client_id=odd)
        await refused(database, copy, "Open the page again")


@on_each_database
async def test_a_form_that_is_sent_twice_rotates_once(database: Database, clock: FakeClock) -> None:
    """It names the replaced secret by its visible prefix."""
    await make_organization(database, clock)
    key = await make_key(database, clock)
    asked = {"client_id": key.credential.client_id, "expected_prefix": key.credential.secret_prefix}
    new = await credentials.rotate_secret(ADMINISTRATOR, database, clock, **asked)
    with pytest.raises(AlreadyMade, match="changed meanwhile"):
        await credentials.rotate_secret(ADMINISTRATOR, database, clock, **asked)
    assert await authenticates(database, new)
    assert [row.action for row in await audit_rows(database)][2:] == ["key.rotate_secret"]


# The ceilings of a new key


@on_each_database
async def test_only_an_administrator_sets_ceilings_of_a_new_key(database: Database, clock: FakeClock) -> None:
    """`default` is the default value; an organization's admin may not even set that."""
    await make_organization(database, clock)
    made = (await make_key(database, clock, token_per_minute=100, api_per_minute="default")).credential
    assert (made.token_per_minute, made.api_per_minute) == (100, 60)
    assert (await audit_rows(database))[-1].detail["token_per_minute"] == 100
    for ceilings in ({"token_per_minute": 10}, {"api_per_minute": "default"}):
        given: dict[str, Any] = ceilings
        with pytest.raises(Forbidden) as refusal:
            await credentials.create_credential(ZOE, database, clock, label="x", organizations=["acme"], **given)
        assert refusal.value.field == next(iter(ceilings))
    with pytest.raises(Forbidden):
        await set_ceilings(ZOE, database, clock, client_id=made.client_id, token_per_minute=None, api_per_minute=None)
    for wrong in (0, -1, "many", 2**70):
        await refused(database, make_key(database, clock, api_per_minute=wrong), "from 1 to")


# Replacing


@on_each_database
async def test_a_replacement_has_the_rights_of_the_old_key(database: Database, clock: FakeClock) -> None:
    """Section 2.1, rotation: both are valid until the old one is deactivated; its tokens stay valid."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
    old = await make_key(
        database,
        clock,
        "acme",
        "bolt",
        default_organization="bolt",
        permissions=frozenset(("read",)),
        api_per_minute=600,
    )
    pair = await make_token(database, clock, old)
    clock.advance(60)
    new = await replace(database, clock, old.credential.client_id)
    same = ("organizations", "default_organization", "permissions", "token_per_minute", "api_per_minute")
    assert [getattr(new.credential, it) for it in same] == [getattr(old.credential, it) for it in same]
    assert new.credential.label == "partner (replacement)"
    assert (new.credential.is_active, new.credential.created_ms) == (True, clock.now_ms())
    assert new.credential.client_id != old.credential.client_id
    assert await show_credential(ADMINISTRATOR, database, client_id=old.credential.client_id) == old.credential
    assert await authenticates(database, old)
    assert await authenticates(database, new)
    assert await find_bearer(database, clock, pair.access_token) is not None


@on_each_database
async def test_the_audit_of_both_keys_shows_the_replacement(database: Database, clock: FakeClock) -> None:
    """Each row names the other key."""
    await make_organization(database, clock)
    old = (await make_key(database, clock, api_per_minute=600)).credential.client_id
    new = (await replace(database, clock, old, new_client_id=MADE_ID)).credential.client_id
    replaced, created = (await audit_rows(database))[-2:]
    assert (replaced.action, replaced.target, replaced.detail) == ("key.replace", old, {"replaced_by": new})
    assert (created.action, created.target, created.detail["replaces"]) == ("key.create", new, old)
    assert created.detail["api_per_minute"] == 600


def ceilings(key: Credential) -> tuple[int, int]:
    return key.token_per_minute, key.api_per_minute


@on_each_database
async def test_an_admins_replacements_do_not_multiply_raised_ceilings(database: Database, clock: FakeClock) -> None:
    """Section D8: only an administrator raises ceilings. A lowered ceiling is no way out either."""
    await make_organization(database, clock)
    old = await make_key(database, clock, token_per_minute=5, api_per_minute=600)
    for _ in range(2):
        new = await replace(database, clock, old.credential.client_id, actor=ZOE)
        assert ceilings(new.credential) == (5, 60)
    assert await show_credential(ADMINISTRATOR, database, client_id=old.credential.client_id) == old.credential
    assert ceilings((await replace(database, clock, old.credential.client_id)).credential) == (5, 600)


@on_each_database
async def test_raised_ceilings_move_if_the_old_key_ends_with_it(database: Database, clock: FakeClock) -> None:
    """They are there once: activating the old key again, or replacing it again, brings none of them back."""
    await make_organization(database, clock)
    old = await make_key(database, clock, token_per_minute=50, api_per_minute=6)
    client_id = old.credential.client_id
    pair = await make_token(database, clock, old)
    new = await replace(database, clock, client_id, actor=ZOE, deactivates_old=True)
    assert (new.credential.is_active, ceilings(new.credential)) == (True, (50, 6))
    assert not await authenticates(database, old)
    assert await find_bearer(database, clock, pair.access_token) is None
    assert [row.action for row in await audit_rows(database)][2:] == [
        "key.replace",
        "key.create",
        "key.limits",
        "key.deactivate",
    ]
    again = await replace(database, clock, client_id, actor=ZOE, deactivates_old=True)
    assert ceilings(again.credential) == (10, 6)
    activated = await credentials.activate_credential(ZOE, database, clock, client_id=client_id)
    assert (activated.is_active, ceilings(activated)) == (True, (10, 6))


@in_own_loop
async def test_concurrent_replacements_move_raised_ceilings_once(database_url: str, clock: FakeClock) -> None:
    """The key's lock lets one of them have the raised ceilings."""
    async with migrated(database_url) as one, opened(database_url) as other:
        await make_organization(one, clock)
        old = (await make_key(one, clock, api_per_minute=600)).credential.client_id
        made = await asyncio.gather(
            *(replace(it, clock, old, actor=ZOE, deactivates_old=True) for it in (one, other, one, other))
        )
        assert sorted(new.credential.api_per_minute for new in made) == [60, 60, 60, 600]


@on_each_database
async def test_a_key_in_any_state_can_be_replaced(database: Database, clock: FakeClock) -> None:
    """The replacement of an inactive key is active; a closed organization stays covered."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
    key = await make_key(database, clock, "acme", "bolt", default_organization="acme")
    await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=key.credential.client_id)
    await close_organization(ADMINISTRATOR, database, clock, slug="bolt")
    new = await replace(database, clock, key.credential.client_id)
    assert (new.credential.is_active, new.credential.organizations) == (True, ["acme", "bolt"])
    assert not (await show_credential(ADMINISTRATOR, database, client_id=key.credential.client_id)).is_active


LABELS = {
    "Shop": "Shop (replacement)",
    "Shop (replacement)": "Shop (replacement 2)",
    "Shop (replacement 2)": "Shop (replacement 3)",
    "Shop (replacement 99)": "Shop (replacement 100)",
    "(replacement)": "(replacement) (replacement)",
    "x" * 200: "x" * 186 + " (replacement)",
    "x" * 185 + " y" + "x" * 13: "x" * 185 + " (replacement)",
    "x" * 186 + " (replacement)": "x" * 184 + " (replacement 2)",
    "x (replacement 9999999)": "x (replacement 9999999) (replacement)",
}


@on_each_database
async def test_a_replacements_label_says_so(database: Database, clock: FakeClock) -> None:
    """It counts on from an earlier replacement, and is never longer than a label may be."""
    await make_organization(database, clock)
    for label, expected in LABELS.items():
        key = await make_key(database, clock, label=label)
        assert (await replace(database, clock, key.credential.client_id)).credential.label == expected
        await make_key(database, clock, label=expected)


@on_each_database
async def test_a_closed_organization_stays_covered_by_an_update(database: Database, clock: FakeClock) -> None:
    """A form sends every covered organization; unchanged ones are not checked."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
    key = await make_key(database, clock, "acme", "bolt", default_organization="acme")
    await close_organization(ADMINISTRATOR, database, clock, slug="bolt")
    sent = credentials.Changes(label="new", organizations=["bolt", "acme"], default_organization="acme")
    client_id = key.credential.client_id
    changed = await credentials.update_credential(ADMINISTRATOR, database, clock, client_id=client_id, changes=sent)
    assert (changed.label, changed.organizations) == ("new", ["acme", "bolt"])


@on_each_database
async def test_a_refusal_names_the_input_at_fault(database: Database, clock: FakeClock) -> None:
    """So that a page can show it beside its field."""
    await make_organization(database, clock)
    faults: dict[str, dict[str, Any]] = {
        "label": {"label": ""},
        "organizations": {"organizations": ["nowhere"]},
        "default_organization": {"default_organization": "bolt"},
        "permissions": {"permissions": frozenset[str]()},
        "token_per_minute": {"token_per_minute": 0},
        "api_per_minute": {"api_per_minute": 0},
    }
    for field, wrong in faults.items():
        with pytest.raises(Refused) as refusal:
            await make_key(database, clock, **wrong)
        assert refusal.value.field == field
