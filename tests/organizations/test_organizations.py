"""Organizations are made, renamed and closed, and never deleted."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from stoplist.db import Database
from stoplist.errors import Refused
from stoplist.oauth.bearer import find_bearer
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
    make_key,
    make_organization,
    make_token,
    migrated,
    on_each_database,
    opened,
    refused,
)
from tests.fakes import FakeClock


@on_each_database
async def test_an_organization_is_as_it_was_asked_for(database: Database, clock: FakeClock) -> None:
    """Slug and name, no default group unless one is named, and open."""
    made = await create_organization(ADMINISTRATOR, database, clock, slug="acme", name=" Acme Shoes ")
    assert made == Organization(
        organization_id=made.organization_id,
        slug="acme",
        name="Acme Shoes",
        default_group_id=None,
        created_ms=clock.now_ms(),
        closed_ms=None,
    )
    assert not made.is_closed
    assert await find_organization(database, "acme") == made
    assert await show_organization(ADMINISTRATOR, database, "acme") == made


@on_each_database
async def test_an_organization_comes_with_its_default_group(database: Database, clock: FakeClock) -> None:
    """One command makes both."""
    made = await make_organization(database, clock, default_group="news")
    [group] = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert (group.name, group.is_default, group.group_id) == ("news", True, made.default_group_id)


@on_each_database
async def test_a_slug_is_taken_for_good(database: Database, clock: FakeClock) -> None:
    """Section D5: that of a closed organization too; nothing of the second one is stored."""
    await make_organization(database, clock)
    await refused(database, make_organization(database, clock, default_group="news"), "taken")
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    await refused(database, make_organization(database, clock), "taken")
    assert len(await list_organizations(ADMINISTRATOR, database)) == 1


@on_each_database
async def test_what_cannot_be_a_slug_or_a_name_is_refused(database: Database, clock: FakeClock) -> None:
    """Before anything is stored, also when only the name of the default group is wrong."""
    for wrong in ({"slug": "Acme"}, {"name": " "}, {"name": "a\nb"}, {"default_group": ""}):
        values: dict[str, Any] = {"slug": "acme", "name": "Acme"} | wrong
        await refused(database, create_organization(ADMINISTRATOR, database, clock, **values), "slug|name")
    assert await list_organizations(ADMINISTRATOR, database) == []


@on_each_database
async def test_organizations_are_listed_by_slug_closed_ones_included(database: Database, clock: FakeClock) -> None:
    """A closed one is still there to be seen."""
    for slug in ("b", "c", "a"):
        await make_organization(database, clock, slug)
    await close_organization(ADMINISTRATOR, database, clock, slug="b")
    listed = await list_organizations(ADMINISTRATOR, database)
    assert [(it.slug, it.is_closed) for it in listed] == [("a", False), ("b", True), ("c", False)]


@on_each_database
async def test_a_new_name_leaves_the_slug(database: Database, clock: FakeClock) -> None:
    """Scripts go by the slug. The audit says what the name was."""
    await make_organization(database, clock)
    renamed = await rename_organization(ADMINISTRATOR, database, clock, slug="acme", name=" Acme Boots ")
    assert (renamed.slug, renamed.name) == ("acme", "Acme Boots")
    assert (await audit_rows(database))[-1].detail == {"name": "Acme Boots", "was": "Acme"}


@on_each_database
async def test_the_same_name_again_is_no_change(database: Database, clock: FakeClock) -> None:
    """Nothing changed, so nothing is recorded."""
    await make_organization(database, clock)
    before = await audit_rows(database)
    again = await rename_organization(ADMINISTRATOR, database, clock, slug="acme", name="Acme")
    assert again.name == "Acme"
    assert await audit_rows(database) == before


@on_each_database
async def test_closing_leaves_all_that_the_organization_has(database: Database, clock: FakeClock) -> None:
    """Groups, keys and living tokens stay as they are; requests for it are refused elsewhere."""
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
async def test_a_closed_organization_stays_as_it_is(database: Database, clock: FakeClock) -> None:
    """It is not closed twice, renamed, or given groups or keys; none of that is recorded."""
    await make_organization(database, clock)
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    tries: list[Awaitable[Any]] = [
        close_organization(ADMINISTRATOR, database, clock, slug="acme"),
        rename_organization(ADMINISTRATOR, database, clock, slug="acme", name="Other"),
        create_group(ADMINISTRATOR, database, clock, org_slug="acme", name="news"),
        make_key(database, clock),
    ]
    for attempt in tries:
        await refused(database, attempt, "closed")


@on_each_database
async def test_an_unknown_organization_is_refused_with_the_way_to_see_them(
    database: Database, clock: FakeClock
) -> None:
    """Whatever is asked of it, also what cannot be a slug at all."""
    for slug in ("nowhere", "No Where!", "", "x" * 1_000, "a\0", "\ud800"):
        tries: list[Awaitable[Any]] = [
            close_organization(ADMINISTRATOR, database, clock, slug=slug),
            rename_organization(ADMINISTRATOR, database, clock, slug=slug, name="Other"),
            list_groups(ADMINISTRATOR, database, org_slug=slug),
            show_organization(ADMINISTRATOR, database, slug),
            create_group(ADMINISTRATOR, database, clock, org_slug=slug, name="news"),
            make_key(database, clock, slug),
        ]
        for attempt in tries:
            await refused(database, attempt, "stoplist org list")


def test_of_many_that_take_a_slug_at_once_one_has_it(database_url: str, clock: FakeClock) -> None:
    """Two processes, twenty people: one organization, one row of audit for it, and no error but the refusal."""

    async def body() -> None:
        async with migrated(database_url) as one, opened(database_url) as other:
            tries = [make_organization((one, other)[turn % 2], clock, default_group="news") for turn in range(20)]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            made = [answer for answer in answers if isinstance(answer, Organization)]
            assert len(made) == 1
            assert {type(answer) for answer in answers if answer not in made} == {Refused}
            assert await list_organizations(ADMINISTRATOR, one) == made
            assert [row.action for row in await audit_rows(other)] == ["organization.create", "group.create"]

    asyncio.run(body())


def test_of_many_that_close_an_organization_at_once_one_does(database_url: str, clock: FakeClock) -> None:
    """The others find it closed: one row of audit."""

    async def body() -> None:
        async with migrated(database_url) as one, opened(database_url) as other:
            await make_organization(one, clock)
            tries = [
                close_organization(ADMINISTRATOR, (one, other)[turn % 2], clock, slug="acme") for turn in range(10)
            ]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(answer, Organization) for answer in answers) == 1
            assert [row.action for row in await audit_rows(one)] == ["organization.create", "organization.close"]

    asyncio.run(body())
