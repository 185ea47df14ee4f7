"""Organizations are created, renamed and closed, and never deleted."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from stoplist.db import Database
from stoplist.errors import Refused
from stoplist.oauth.credentials import show_credential
from stoplist.organizations.groups import create_group, list_groups
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import (
    close_organization,
    create_organization,
    list_organizations,
    rename_organization,
    show_organization,
)
from stoplist.organizations.store import find_organization
from tests.builders import (
    ADMINISTRATOR,
    audit_rows,
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


@on_each_database
async def test_an_organization_is_created_as_requested(database: Database, clock: FakeClock) -> None:
    """It has its slug and name, is open, and has no default group unless one is named."""
    created = await create_organization(ADMINISTRATOR, database, clock, slug="acme", name=" Acme Shoes ")
    assert created == Organization(
        organization_id=created.organization_id,
        slug="acme",
        name="Acme Shoes",
        default_group_id=None,
        created_ms=clock.now_ms(),
        closed_ms=None,
    )
    assert not created.is_closed
    assert await find_organization(database, "acme") == created
    assert await show_organization(ADMINISTRATOR, database, "acme") == created


@on_each_database
async def test_an_organization_can_be_created_with_a_default_group(database: Database, clock: FakeClock) -> None:
    created = await make_organization(database, clock, default_group="news")
    [group] = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert (group.name, group.is_default, group.group_id) == ("news", True, created.default_group_id)


@on_each_database
async def test_a_slug_is_taken_permanently(database: Database, clock: FakeClock) -> None:
    """Section D5: even that of a closed organization. Nothing of the second organization is stored."""
    await make_organization(database, clock)
    await refused(database, make_organization(database, clock, default_group="news"), "taken")
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    await refused(database, make_organization(database, clock), "taken")
    assert len(await list_organizations(ADMINISTRATOR, database)) == 1


@on_each_database
async def test_invalid_slugs_and_names_are_refused(database: Database, clock: FakeClock) -> None:
    """Nothing is stored, even if only the name of the default group is wrong."""
    for wrong in ({"slug": "Acme"}, {"name": " "}, {"name": "a\nb"}, {"default_group": ""}):
        values: dict[str, Any] = {"slug": "acme", "name": "Acme"} | wrong
        await refused(database, create_organization(ADMINISTRATOR, database, clock, **values), "slug|name")
    assert await list_organizations(ADMINISTRATOR, database) == []


@on_each_database
async def test_organizations_are_listed_by_slug(database: Database, clock: FakeClock) -> None:
    """Closed ones included."""
    for slug in ("b", "c", "a"):
        await make_organization(database, clock, slug)
    await close_organization(ADMINISTRATOR, database, clock, slug="b")
    listed = await list_organizations(ADMINISTRATOR, database)
    assert [(organization.slug, organization.is_closed) for organization in listed] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]


@on_each_database
async def test_renaming_keeps_the_slug(database: Database, clock: FakeClock) -> None:
    """Scripts use the slug. The audit has the former name."""
    await make_organization(database, clock)
    renamed = await rename_organization(ADMINISTRATOR, database, clock, slug="acme", name=" Acme Boots ")
    assert (renamed.slug, renamed.name) == ("acme", "Acme Boots")
    assert (await audit_rows(database))[-1].detail == {"name": "Acme Boots", "was": "Acme"}


@on_each_database
async def test_the_same_name_again_is_not_recorded(database: Database, clock: FakeClock) -> None:
    await make_organization(database, clock)
    before = await audit_rows(database)
    again = await rename_organization(ADMINISTRATOR, database, clock, slug="acme", name="Acme")
    assert again.name == "Acme"
    assert await audit_rows(database) == before


@on_each_database
async def test_closing_keeps_groups_keys_and_tokens(database: Database, clock: FakeClock) -> None:
    """Requests for the organization are refused elsewhere."""
    await make_organization(database, clock, default_group="news")
    key = await make_key(database, clock)
    pair = await make_token(database, clock, key)
    clock.advance(5)
    closed = await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    assert closed.is_closed
    assert closed.closed_ms == clock.now_ms()
    assert closed.default_group_id is not None
    assert len(await list_groups(ADMINISTRATOR, database, org_slug="acme")) == 1
    assert (await show_credential(ADMINISTRATOR, database, client_id=key.credential.client_id)).is_active
    assert await find_bearer(database, clock, pair.access_token) is not None


@on_each_database
async def test_a_closed_organization_cannot_be_changed(database: Database, clock: FakeClock) -> None:
    """It is not closed again or renamed, and gets no groups or keys; no attempt is recorded."""
    await make_organization(database, clock)
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    attempts: list[Awaitable[Any]] = [
        close_organization(ADMINISTRATOR, database, clock, slug="acme"),
        rename_organization(ADMINISTRATOR, database, clock, slug="acme", name="Other"),
        create_group(ADMINISTRATOR, database, clock, org_slug="acme", name="news"),
        make_key(database, clock),
    ]
    for attempt in attempts:
        await refused(database, attempt, "closed")


@on_each_database
async def test_an_unknown_organization_is_refused_with_a_hint(database: Database, clock: FakeClock) -> None:
    """Every operation refuses it; a malformed slug is refused too."""
    for slug in ("nowhere", "No Where!", "", "x" * 1_000, "a\0", "\ud800"):
        attempts: list[Awaitable[Any]] = [
            close_organization(ADMINISTRATOR, database, clock, slug=slug),
            rename_organization(ADMINISTRATOR, database, clock, slug=slug, name="Other"),
            list_groups(ADMINISTRATOR, database, org_slug=slug),
            show_organization(ADMINISTRATOR, database, slug),
            create_group(ADMINISTRATOR, database, clock, org_slug=slug, name="news"),
            make_key(database, clock, slug),
        ]
        for attempt in attempts:
            await refused(database, attempt, "stoplist org list")


@in_own_loop
async def test_a_slug_taken_concurrently_goes_to_one_organization(database_url: str, clock: FakeClock) -> None:
    """One of twenty attempts in two processes succeeds and is audited; the others are Refused."""
    async with migrated(database_url) as one, opened(database_url) as other:
        attempts = [make_organization((one, other)[turn % 2], clock, default_group="news") for turn in range(20)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        created = [result for result in results if isinstance(result, Organization)]
        assert len(created) == 1
        assert {type(result) for result in results if result not in created} == {Refused}
        assert await list_organizations(ADMINISTRATOR, one) == created
        assert [row.action for row in await audit_rows(other)] == ["organization.create", "group.create"]


@in_own_loop
async def test_an_organization_closed_concurrently_is_audited_once(database_url: str, clock: FakeClock) -> None:
    async with migrated(database_url) as one, opened(database_url) as other:
        await make_organization(one, clock)
        attempts = [close_organization(ADMINISTRATOR, (one, other)[turn % 2], clock, slug="acme") for turn in range(10)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(result, Organization) for result in results) == 1
        assert [row.action for row in await audit_rows(one)] == ["organization.create", "organization.close"]
