"""API credentials: their first state, and the effect of each change."""

import asyncio
import re
from typing import Any

import pytest

from stoplist import ids
from stoplist.db import Database
from stoplist.errors import Refused
from stoplist.oauth import credentials
from stoplist.oauth.authentication import find_client
from stoplist.oauth.ceilings import set_ceilings
from stoplist.oauth.credentials import Changes, NewCredential, list_credentials, show_credential
from stoplist.oauth.model import MAX_PER_MINUTE, Credential, TokenPair
from stoplist.oauth.usage import Usage
from stoplist.organizations.organizations import close_organization
from tests.builders import (
    ADMINISTRATOR,
    audit_rows,
    authenticates,
    contents,
    find_bearer,
    make_key,
    make_organization,
    make_token,
    migrated,
    on_each_database,
    opened,
    refused,
    rotate_token,
    value,
)
from tests.constants import DAY_MS
from tests.deployment import in_own_loop
from tests.fakes import FakeClock

ALL = frozenset(("read", "unsubscribe", "resubscribe"))


async def key_with_token(database: Database, clock: FakeClock) -> tuple[NewCredential, TokenPair]:
    """Create the organization `acme`, a key for it, and a valid pair."""
    await make_organization(database, clock)
    key = await make_key(database, clock)
    return key, await make_token(database, clock, key)


async def change(database: Database, clock: FakeClock, client_id: str, **changes: Any) -> Credential:
    return await credentials.update_credential(
        ADMINISTRATOR, database, clock, client_id=client_id, changes=Changes(**changes)
    )


async def ceilings(
    database: Database, clock: FakeClock, client_id: str, token: int | str | None = None, api: int | str | None = None
) -> tuple[int, int]:
    """Return the ceilings in force after `key limits` with these values."""
    credential = await set_ceilings(
        ADMINISTRATOR, database, clock, client_id=client_id, token_per_minute=token, api_per_minute=api
    )
    return credential.token_per_minute, credential.api_per_minute


async def lives(database: Database, clock: FakeClock, pair: TokenPair) -> tuple[bool, bool]:
    """Return whether its access token is accepted and its refresh token rotated."""
    is_answered = await find_bearer(database, clock, pair.access_token) is not None
    return is_answered, await rotate_token(database, clock, pair.refresh_token) is not None


async def epoch(database: Database, client_id: str) -> int:
    return int(await value(database, "SELECT epoch FROM clients WHERE client_id = :client_id", client_id=client_id))


def ids_of(key: NewCredential) -> str:
    return key.credential.client_id


# A new key


@on_each_database
async def test_a_new_key_has_the_documented_properties(database: Database, clock: FakeClock) -> None:
    """Sections 2.1, D2 and D3: formats, the visible prefix, default permissions and ceilings, and it is active."""
    await make_organization(database, clock)
    key = await make_key(database, clock, label=" Shop ")
    assert re.fullmatch(r"svc_ci_[0-9A-Za-z]{22}", ids_of(key))
    assert ids.is_well_formed(key.client_secret, ids.CLIENT_SECRET)
    assert key.credential == Credential(
        client_id=ids_of(key),
        label="Shop",
        secret_prefix=key.client_secret[:11],
        is_active=True,
        organizations=["acme"],
        default_organization="acme",
        permissions=["read", "unsubscribe"],
        token_per_minute=10,
        api_per_minute=60,
        refresh_needs_secret=False,
        last_used_ms=None,
        created_ms=clock.now_ms(),
    )
    assert await show_credential(ADMINISTRATOR, database, client_id=ids_of(key)) == key.credential
    assert await authenticates(database, key)


@on_each_database
async def test_only_the_hash_of_a_secret_is_stored(database: Database, clock: FakeClock) -> None:
    """Section D2, At rest: shown only once; the database holds SHA-256 and the prefix."""
    key, pair = await key_with_token(database, clock)
    tables = ("clients", "client_organizations", "token_pairs", "audit")
    everything = repr(await contents(database, *tables))
    for secret in (key.client_secret, pair.access_token, pair.refresh_token):
        assert secret[12:] not in everything
        assert repr(ids.hash_secret(secret)) in everything


@on_each_database
async def test_a_single_organization_is_the_default(database: Database, clock: FakeClock) -> None:
    """Section D9: with several, one of them must be named."""
    for slug in ("acme", "bolt", "cord"):
        await make_organization(database, clock, slug)
    key = await make_key(database, clock, "bolt", "acme", default_organization="bolt")
    assert (key.credential.organizations, key.credential.default_organization) == (["acme", "bolt"], "bolt")
    assert (await make_key(database, clock, "acme", "acme")).credential.organizations == ["acme"]
    await refused(database, make_key(database, clock, "acme", "bolt"), "needs one of them")
    await refused(database, make_key(database, clock, "acme", default_organization="cord"), "must be one of")
    await refused(database, make_key(database, clock, organizations=[]), "at least one organization")


@on_each_database
async def test_a_key_needs_open_existing_organizations(database: Database, clock: FakeClock) -> None:
    """One wrong organization among several: no key is created."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
    await close_organization(ADMINISTRATOR, database, clock, slug="bolt")
    await refused(database, make_key(database, clock, "acme", "bolt", default_organization="acme"), "closed")
    await refused(
        database, make_key(database, clock, "acme", "nowhere", default_organization="acme"), "no organization"
    )
    assert await list_credentials(ADMINISTRATOR, database) == []


@on_each_database
async def test_permissions_are_validated(database: Database, clock: FakeClock) -> None:
    """Section D3: any of three, at least one; shown in a fixed order."""
    await make_organization(database, clock)
    key = await make_key(database, clock, permissions=frozenset(("resubscribe", "read")))
    assert key.credential.permissions == ["read", "resubscribe"]
    for wrong in (frozenset[str](), frozenset(("write",)), frozenset(("read", "")), frozenset(("read unsubscribe",))):
        await refused(database, make_key(database, clock, permissions=wrong), "read, unsubscribe, resubscribe")
        await refused(database, change(database, clock, ids_of(key), permissions=wrong), "read, unsubscribe")


@on_each_database
async def test_a_label_is_one_line(database: Database, clock: FakeClock) -> None:
    """This holds for new and changed keys; two keys may have the same label."""
    await make_organization(database, clock)
    key = await make_key(database, clock, label="shop")
    await make_key(database, clock, label="shop")
    for wrong in ("", " ", "a\nb", "x" * 201):
        await refused(database, make_key(database, clock, label=wrong), "label of a key")
        await refused(database, change(database, clock, ids_of(key), label=wrong), "label of a key")


@on_each_database
async def test_keys_are_listed_oldest_first(database: Database, clock: FakeClock) -> None:
    """Each with its own organizations, including inactive keys."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
    made = []
    for organizations in (("bolt",), ("acme", "bolt"), ("acme",)):
        clock.advance(1)
        made.append(await make_key(database, clock, *organizations, default_organization=organizations[0]))
    off = await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=ids_of(made[0]))
    listed = await list_credentials(ADMINISTRATOR, database)
    assert listed == [off, made[1].credential, made[2].credential]
    some = await list_credentials(ADMINISTRATOR, database, client_ids=[ids_of(made[2]), ids_of(made[1]), "nobody"])
    assert some == listed[1:]


@on_each_database
async def test_an_unknown_key_is_refused_with_a_hint(database: Database, clock: FakeClock) -> None:
    """Every operation refuses it, also a text that cannot be a `client_id`."""
    await make_organization(database, clock)
    for client_id in ("svc_ci_0000000000000000000000", "nobody", "", "x" * 1_000, "svc_ci_\0", "svc_ci_\ud800"):
        for operation in (
            credentials.deactivate_credential,
            credentials.activate_credential,
            credentials.revoke_tokens,
            credentials.rotate_secret,
        ):
            await refused(database, operation(ADMINISTRATOR, database, clock, client_id=client_id), "stoplist key list")
        await refused(database, ceilings(database, clock, client_id, 5), "stoplist key list")
        await refused(database, change(database, clock, client_id, label="x"), "stoplist key list")
        await refused(database, show_credential(ADMINISTRATOR, database, client_id=client_id), "stoplist key list")


# Revoking


@on_each_database
async def test_deactivation_takes_effect_at_once(database: Database, clock: FakeClock) -> None:
    """Section 2.1; activation restores no tokens, though the secret is valid again (section D2)."""
    key, pair = await key_with_token(database, clock)
    off = await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    assert not off.is_active
    assert not await authenticates(database, key)
    assert await lives(database, clock, pair) == (False, False)
    on = await credentials.activate_credential(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    assert on == key.credential
    assert await epoch(database, ids_of(key)) == 2
    assert await authenticates(database, key)
    assert await lives(database, clock, pair) == (False, False)
    assert await lives(database, clock, await make_token(database, clock, key)) == (True, True)


@on_each_database
async def test_switching_to_the_present_state_changes_nothing(database: Database, clock: FakeClock) -> None:
    """No audit row, and activating an active key revokes nothing."""
    key, pair = await key_with_token(database, clock)
    before = await audit_rows(database)
    on = await credentials.activate_credential(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    assert on.is_active
    assert await audit_rows(database) == before
    assert await lives(database, clock, pair) == (True, True)
    for _ in range(2):
        await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    assert len(await audit_rows(database)) == len(before) + 1
    assert await epoch(database, ids_of(key)) == 2


@on_each_database
async def test_revoking_tokens_keeps_the_secret(database: Database, clock: FakeClock) -> None:
    """Every token issued so far is invalid; the key gets new ones. Other keys are not affected."""
    key, pair = await key_with_token(database, clock)
    other = await make_key(database, clock)
    others_pair = await make_token(database, clock, other)
    await credentials.revoke_tokens(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    assert await lives(database, clock, pair) == (False, False)
    assert await authenticates(database, key)
    assert await lives(database, clock, await make_token(database, clock, key)) == (True, True)
    assert await lives(database, clock, others_pair) == (True, True)


@on_each_database
async def test_rotating_the_secret_revokes_every_token(database: Database, clock: FakeClock) -> None:
    """Section 3.1; the rest of the key does not change."""
    key, pair = await key_with_token(database, clock)
    new = await credentials.rotate_secret(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    assert ids.is_well_formed(new.client_secret, ids.CLIENT_SECRET)
    assert new.client_secret != key.client_secret
    assert new.credential.secret_prefix == new.client_secret[:11]
    assert not await authenticates(database, key)
    assert await authenticates(database, new)
    assert await lives(database, clock, pair) == (False, False)
    unchanged = ("client_id", "label", "is_active", "organizations", "permissions", "created_ms")
    assert [getattr(new.credential, name) for name in unchanged] == [
        getattr(key.credential, name) for name in unchanged
    ]


@on_each_database
async def test_rotating_the_secret_does_not_activate_the_key(database: Database, clock: FakeClock) -> None:
    key, _ = await key_with_token(database, clock)
    await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    new = await credentials.rotate_secret(ADMINISTRATOR, database, clock, client_id=ids_of(key))
    assert not new.credential.is_active
    assert not await authenticates(database, new)


# Ceilings


@on_each_database
async def test_ceilings_can_be_raised_lowered_and_reset(database: Database, clock: FakeClock) -> None:
    """Section D8: each separately. Tokens stay valid, and authentication sees the change at once."""
    key, pair = await key_with_token(database, clock)
    client_id = ids_of(key)
    assert await ceilings(database, clock, client_id) == (10, 60)
    assert await ceilings(database, clock, client_id, 100) == (100, 60)
    assert await ceilings(database, clock, client_id, None, 5) == (100, 5)
    client, bearer = await find_client(database, client_id), await find_bearer(database, clock, pair.access_token)
    assert client is not None
    assert bearer is not None
    assert (client.token_per_minute, bearer.api_per_minute) == (100, 5)
    assert await ceilings(database, clock, client_id, "default", MAX_PER_MINUTE) == (10, MAX_PER_MINUTE)
    assert await ceilings(database, clock, client_id, None, "default") == (10, 60)
    assert await lives(database, clock, pair) == (True, True)


@on_each_database
async def test_setting_the_present_ceilings_changes_nothing(database: Database, clock: FakeClock) -> None:
    """No audit row, unless the default is set as a number, because the default may change."""
    key, _ = await key_with_token(database, clock)
    await ceilings(database, clock, ids_of(key), 7)
    before = await audit_rows(database)
    for unchanged in ((None, None), (7, None), (7, "default"), (None, "default")):
        assert await ceilings(database, clock, ids_of(key), *unchanged) == (7, 60)
    assert await audit_rows(database) == before
    await ceilings(database, clock, ids_of(key), None, 60)
    assert (await audit_rows(database))[-1].detail == {
        "token_per_minute": 7,
        "api_per_minute": 60,
        "was": {"token_per_minute": 7, "api_per_minute": None},
    }


@on_each_database
async def test_a_ceiling_is_a_number_from_one(database: Database, clock: FakeClock) -> None:
    """If one of the two is wrong, neither is set."""
    key, _ = await key_with_token(database, clock)
    for wrong in (0, -1, MAX_PER_MINUTE + 1, 2**70):
        await refused(database, ceilings(database, clock, ids_of(key), wrong, 5), "from 1 to")
        await refused(database, ceilings(database, clock, ids_of(key), 5, wrong), "from 1 to")
    assert await ceilings(database, clock, ids_of(key)) == (10, 60)


# Changing


@on_each_database
async def test_each_given_change_replaces_the_old_value(database: Database, clock: FakeClock) -> None:
    """Section D9, key update; other values stay, and active tokens follow at once."""
    key, pair = await key_with_token(database, clock)
    client_id = ids_of(key)
    await make_organization(database, clock, "bolt")
    assert (await change(database, clock, client_id, label="new")).label == "new"
    assert (await change(database, clock, client_id, permissions=ALL)).permissions == [
        "read",
        "unsubscribe",
        "resubscribe",
    ]
    bearer = await find_bearer(database, clock, pair.access_token)
    assert bearer is not None
    assert bearer.permissions == ALL
    await change(database, clock, client_id, permissions=frozenset(("read",)))
    bearer = await find_bearer(database, clock, pair.access_token)
    assert bearer is not None
    assert bearer.permissions == {"read"}
    changed = await change(database, clock, client_id, organizations=["bolt"])
    assert changed == await show_credential(ADMINISTRATOR, database, client_id=client_id)
    assert (changed.label, changed.organizations, changed.default_organization) == ("new", ["bolt"], "bolt")
    assert await lives(database, clock, pair) == (True, True)
    assert await epoch(database, client_id) == 1


@on_each_database
async def test_the_default_is_always_a_covered_organization(database: Database, clock: FakeClock) -> None:
    """The one named; else the old one if still covered; else the only one; else it must be named."""
    for slug in ("acme", "bolt", "cord"):
        await make_organization(database, clock, slug)
    client_id = ids_of(await make_key(database, clock))

    async def default_after(**changes: Any) -> str | None:
        return (await change(database, clock, client_id, **changes)).default_organization

    assert await default_after(organizations=["bolt", "acme"]) == "acme"
    assert await default_after(default_organization="bolt") == "bolt"
    assert await default_after(organizations=["cord"]) == "cord"
    await refused(database, change(database, clock, client_id, organizations=["acme", "bolt"]), "needs one of them")
    await refused(database, change(database, clock, client_id, default_organization="acme"), "must be one of")
    await refused(database, change(database, clock, client_id, organizations=[]), "at least one organization")
    assert await default_after(organizations=["acme", "bolt"], default_organization="bolt") == "bolt"


@on_each_database
async def test_a_key_cannot_be_extended_to_closed_organizations(database: Database, clock: FakeClock) -> None:
    """Nor can one become its default. Nothing of such a change is stored; other changes still work."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
    key = await make_key(database, clock, "acme", "bolt", default_organization="acme")
    await close_organization(ADMINISTRATOR, database, clock, slug="bolt")
    client_id = ids_of(key)
    await refused(database, change(database, clock, client_id, organizations=["bolt"], label="x"), "closed")
    await refused(database, change(database, clock, client_id, default_organization="bolt", label="x"), "closed")
    await refused(database, change(database, clock, client_id, organizations=["acme", "nowhere"]), "no organization")
    assert await show_credential(ADMINISTRATOR, database, client_id=client_id) == key.credential
    assert (await change(database, clock, client_id, label="new")).label == "new"


@on_each_database
async def test_an_update_without_a_difference_changes_nothing(database: Database, clock: FakeClock) -> None:
    """No audit row."""
    key, _ = await key_with_token(database, clock)
    before = await audit_rows(database)
    same = {"label": " partner ", "organizations": ["acme"], "permissions": frozenset(("unsubscribe", "read"))}
    assert await change(database, clock, ids_of(key), **same, default_organization="acme") == key.credential
    assert await change(database, clock, ids_of(key)) == key.credential
    assert await audit_rows(database) == before


# Concurrent changes


@in_own_loop
async def test_concurrent_changes_are_serialised(database_url: str, clock: FakeClock) -> None:
    """Two processes: the key is as the last change left it, never a mixture, and each change has its audit row."""
    async with migrated(database_url) as one, opened(database_url) as other:
        slugs = [f"org-{number}" for number in range(4)]
        for slug in slugs:
            await make_organization(one, clock, slug)
        client_id = ids_of(await make_key(one, clock, "org-0"))
        wanted = [(slugs[turn % 3 : turn % 3 + 2], f"label {turn}") for turn in range(12)]
        changes = [
            change(
                (one, other)[turn % 2],
                clock,
                client_id,
                organizations=organizations,
                default_organization=organizations[0],
                label=label,
            )
            for turn, (organizations, label) in enumerate(wanted)
        ]
        await asyncio.gather(*changes)
        last = await show_credential(ADMINISTRATOR, one, client_id=client_id)
        assert (last.organizations, last.label) in wanted
        rows = [row for row in await audit_rows(other) if row.action == "key.update"]
        assert sorted(row.detail["label"] for row in rows) == sorted(label for _, label in wanted)
        assert rows[-1].detail["was"] in [{k: v for k, v in row.detail.items() if k != "was"} for row in rows[:-1]]
        assert {k: v for k, v in rows[-1].detail.items() if k != "was"} == {
            "label": last.label,
            "covers": last.organizations,
            "default_organization": last.default_organization,
            "permissions": last.permissions,
            "refresh_needs_secret": last.refresh_needs_secret,
        }


@in_own_loop
async def test_concurrent_deactivations_take_effect_once(database_url: str, clock: FakeClock) -> None:
    """One audit row and one increment of the epoch; the others find it done."""
    async with migrated(database_url) as one, opened(database_url) as other:
        await make_organization(one, clock)
        client_id = ids_of(await make_key(one, clock))
        tries = [
            credentials.deactivate_credential(ADMINISTRATOR, (one, other)[turn % 2], clock, client_id=client_id)
            for turn in range(10)
        ]
        assert {credential.is_active for credential in await asyncio.gather(*tries)} == {False}
        assert [row.action for row in await audit_rows(one)][2:] == ["key.deactivate"]
        assert await epoch(one, client_id) == 2


@in_own_loop
async def test_no_key_is_created_after_its_organization_closed(database_url: str, clock: FakeClock) -> None:
    """The audit shows the key first, or no key."""
    async with migrated(database_url) as one, opened(database_url) as other:
        for turn in range(6):
            slug = f"org-{turn}"
            await make_organization(one, clock, slug)
            pair = [make_key(one, clock, slug), close_organization(ADMINISTRATOR, other, clock, slug=slug)]
            answers: list[Any] = await asyncio.gather(*(pair if turn % 2 else pair[::-1]), return_exceptions=True)
            actions = [row.action for row in await audit_rows(one)][-2:]
            if any(isinstance(answer, Refused) for answer in answers):
                assert actions == ["organization.create", "organization.close"]
            else:
                assert actions == ["key.create", "organization.close"]


@on_each_database
async def test_last_used_is_the_latest_of_all_days(database: Database, clock: FakeClock) -> None:
    """Section 2.1: shown and listed with the key; None for a key that was never used."""
    await make_organization(database, clock)
    key, unused = await make_key(database, clock), await make_key(database, clock)
    usage = Usage()
    for day in (0, 2, 1):
        at_ms = clock.now_ms() + day * DAY_MS
        usage.note(ids_of(key), now_ms=at_ms, is_authenticated=True, error=None, request_id="r")
        await usage.flush(database)
    shown = await show_credential(ADMINISTRATOR, database, client_id=ids_of(key))
    assert shown.last_used_ms == clock.now_ms() + 2 * DAY_MS
    listed = {it.client_id: it.last_used_ms for it in await list_credentials(ADMINISTRATOR, database)}
    assert listed == {ids_of(key): shown.last_used_ms, ids_of(unused): None}


def test_a_key_is_never_shown_with_its_secret() -> None:
    """The struct that is shown and listed has no field for it."""
    assert not {"client_secret", "secret_hash"} & set(Credential.__struct_fields__)
    with pytest.raises(TypeError):
        Credential(client_secret="x")  # type: ignore[call-arg]
