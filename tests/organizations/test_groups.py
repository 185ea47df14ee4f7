"""Groups are created, renamed, retired and chosen as the default within one organization."""

import asyncio
import re

from stoplist.db import Database
from stoplist.errors import Refused
from stoplist.organizations.groups import (
    create_group,
    list_groups,
    rename_group,
    retire_group,
    set_default_group,
    unset_default_group,
)
from stoplist.organizations.model import Group
from stoplist.organizations.organizations import close_organization
from stoplist.organizations.store import find_organization
from tests.builders import (
    ADMINISTRATOR,
    audit_rows,
    make_organization,
    migrated,
    on_each_database,
    opened,
    refused,
    sql,
)
from tests.deployment import in_own_loop
from tests.fakes import FakeClock


async def make_group(
    database: Database, clock: FakeClock, name: str, *, org_slug: str = "acme", is_default: bool = False
) -> Group:
    return await create_group(ADMINISTRATOR, database, clock, org_slug=org_slug, name=name, is_default=is_default)


async def default_group_id(database: Database, slug: str = "acme") -> str | None:
    return (await find_organization(database, slug)).default_group_id


@on_each_database
async def test_a_group_is_created_as_requested(database: Database, clock: FakeClock) -> None:
    """Section D5: its id is `grp_` and 22 base62 characters; it is in use, and not the default unless requested."""
    await make_organization(database, clock)
    created = await make_group(database, clock, " Reminders ")
    assert re.fullmatch(r"grp_[0-9A-Za-z]{22}", created.group_id)
    assert created == Group(
        group_id=created.group_id,
        org_slug="acme",
        name="Reminders",
        is_default=False,
        created_ms=clock.now_ms(),
        retired_ms=None,
    )
    assert await default_group_id(database) is None


@on_each_database
async def test_a_new_default_replaces_the_old_one(database: Database, clock: FakeClock) -> None:
    """An organization has at most one."""
    await make_organization(database, clock, default_group="news")
    created = await make_group(database, clock, "letters", is_default=True)
    assert created.is_default
    assert await default_group_id(database) == created.group_id
    groups = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert [(group.name, group.is_default) for group in groups] == [("news", False), ("letters", True)]


@on_each_database
async def test_a_name_is_unique_in_its_organization(database: Database, clock: FakeClock) -> None:
    """Retired groups included; another organization may use the same name."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug, default_group="news")
    before = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    await refused(database, make_group(database, clock, "news", is_default=True), "already")
    await refused(database, make_group(database, clock, " news "), "already")
    assert await list_groups(ADMINISTRATOR, database, org_slug="acme") == before
    await retire_group(ADMINISTRATOR, database, clock, group_id=before[0].group_id)
    await refused(database, make_group(database, clock, "news"), "retired one")


@on_each_database
async def test_an_invalid_group_name_is_refused(database: Database, clock: FakeClock) -> None:
    """The rules are the same as for names of organizations."""
    await make_organization(database, clock)
    for name in ("", " ", "a\nb", "x" * 201):
        await refused(database, make_group(database, clock, name), "name of a group")


@on_each_database
async def test_groups_are_numbered_within_their_organization(database: Database, clock: FakeClock) -> None:
    """They begin at 1, in the order of their creation and of the list; 0 stands for all groups."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
        for name in ("c", "a", "b"):
            await make_group(database, clock, name, org_slug=slug)
    rows = await database.all(
        sql("SELECT organization_id, group_no, name FROM groups ORDER BY organization_id, group_no")
    )
    assert [(row["group_no"], row["name"]) for row in rows] == [(1, "c"), (2, "a"), (3, "b")] * 2
    listed = await list_groups(ADMINISTRATOR, database, org_slug="bolt")
    assert [group.name for group in listed] == ["c", "a", "b"]


@on_each_database
async def test_renaming_keeps_the_id(database: Database, clock: FakeClock) -> None:
    """Requests use the id. The audit has the former name; the same name again is no change."""
    created = await make_organization(database, clock, default_group="news")
    assert created.default_group_id is not None
    group_id = created.default_group_id
    renamed = await _rename(database, clock, group_id, " Letters ")
    assert (renamed.group_id, renamed.name, renamed.is_default) == (group_id, "Letters", True)
    row = (await audit_rows(database))[-1]
    assert (row.action, row.detail) == ("group.rename", {"org_slug": "acme", "name": "Letters", "was": "news"})
    before = await audit_rows(database)
    assert await _rename(database, clock, group_id, "Letters") == renamed
    assert await audit_rows(database) == before


@on_each_database
async def test_a_new_name_is_unique_in_its_organization_too(database: Database, clock: FakeClock) -> None:
    """Retired groups included; former names, and names in another organization, may be used."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug, default_group="news")
    letters, offers = await make_group(database, clock, "letters"), await make_group(database, clock, "offers")
    await _retire(database, clock, letters.group_id)
    for name in ("news", "letters", " news "):
        await refused(database, _rename(database, clock, offers.group_id, name), "already")
    for name in ("", "a\nb", "x" * 201):
        await refused(database, _rename(database, clock, offers.group_id, name), "name of a group")
    assert (await _rename(database, clock, offers.group_id, "sales")).name == "sales"
    assert (await make_group(database, clock, "offers")).name == "offers"
    await refused(database, _rename(database, clock, letters.group_id, "old letters"), "retired already")
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    await refused(database, _rename(database, clock, offers.group_id, "more"), "closed")


@in_own_loop
async def test_a_name_taken_concurrently_goes_to_one_group(database_url: str, clock: FakeClock) -> None:
    """Two processes rename and create: there is one group with that name, and no error but Refused."""
    async with migrated(database_url) as one, opened(database_url) as other:
        await make_organization(one, clock)
        groups = [await make_group(one, clock, f"group {number}") for number in range(6)]
        attempts = [_rename((one, other)[at % 2], clock, group.group_id, "news") for at, group in enumerate(groups)]
        attempts += [make_group((one, other)[at % 2], clock, "news") for at in range(4)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert {type(result) for result in results} == {Group, Refused}
        names = [group.name for group in await list_groups(ADMINISTRATOR, one, org_slug="acme")]
        assert names.count("news") == sum(isinstance(result, Group) for result in results) == 1


@on_each_database
async def test_the_default_group_can_be_unset(database: Database, clock: FakeClock) -> None:
    """The group itself stays in use; the audit names it, and a repetition is no change."""
    created = await make_organization(database, clock, default_group="news")
    left = await unset_default_group(ADMINISTRATOR, database, clock, org_slug="acme")
    assert left.default_group_id is None
    assert await default_group_id(database) is None
    [group] = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert (group.is_default, group.retired_ms) == (False, None)
    before = await audit_rows(database)
    assert (before[-1].action, before[-1].detail) == (
        "organization.unset_default_group",
        {"group_id": created.default_group_id},
    )
    assert await unset_default_group(ADMINISTRATOR, database, clock, org_slug="acme") == left
    assert await audit_rows(database) == before


@on_each_database
async def test_a_retired_group_stays_in_the_list(database: Database, clock: FakeClock) -> None:
    """It keeps its name and has the time of its retirement; the default group is unchanged."""
    await make_organization(database, clock, default_group="news")
    group = await make_group(database, clock, "letters")
    clock.advance(5)
    retired = await retire_group(ADMINISTRATOR, database, clock, group_id=group.group_id)
    assert retired.retired_ms == clock.now_ms()
    listed = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert [(group.name, group.is_default, group.retired_ms is None) for group in listed] == [
        ("news", True, True),
        ("letters", False, False),
    ]


@on_each_database
async def test_retiring_the_default_leaves_none(database: Database, clock: FakeClock) -> None:
    """Section D5; the audit records that it was the default."""
    created = await make_organization(database, clock, default_group="news")
    await make_group(database, clock, "letters")
    assert created.default_group_id is not None
    retired = await retire_group(ADMINISTRATOR, database, clock, group_id=created.default_group_id)
    assert not retired.is_default
    assert await default_group_id(database) is None
    assert (await audit_rows(database))[-1].detail == {"org_slug": "acme", "was_default": True}


@on_each_database
async def test_a_retired_group_cannot_be_changed(database: Database, clock: FakeClock) -> None:
    """It can be neither retired again nor made the default; neither attempt is recorded."""
    await make_organization(database, clock)
    group = await make_group(database, clock, "news")
    retired = await retire_group(ADMINISTRATOR, database, clock, group_id=group.group_id)
    clock.advance(5)
    await refused(database, _retire(database, clock, group.group_id), "retired already")
    await refused(database, _set_default(database, clock, group.group_id), "retired")
    assert await list_groups(ADMINISTRATOR, database, org_slug="acme") == [retired]


@on_each_database
async def test_the_default_is_a_group_of_the_organization(database: Database, clock: FakeClock) -> None:
    """A group of another organization is refused; choosing the default again is no change."""
    await make_organization(database, clock, "acme")
    await make_organization(database, clock, "bolt", default_group="news")
    group, of_bolt = await make_group(database, clock, "letters"), await default_group_id(database, "bolt")
    assert of_bolt is not None
    chosen = await _set_default(database, clock, group.group_id)
    assert chosen.is_default
    assert await default_group_id(database) == group.group_id
    await refused(database, _set_default(database, clock, of_bolt), "another organization")
    before = await audit_rows(database)
    assert (await _set_default(database, clock, group.group_id)).is_default
    assert await audit_rows(database) == before


@on_each_database
async def test_an_unknown_group_is_refused_with_a_hint(database: Database, clock: FakeClock) -> None:
    """So is a malformed id."""
    await make_organization(database, clock)
    for group_id in ("grp_0000000000000000000000", "news", "", "x" * 1_000, "grp_\0", "grp_\ud800"):
        for attempt in (_retire, _set_default):
            await refused(database, attempt(database, clock, group_id), "stoplist group list")


@on_each_database
async def test_groups_of_a_closed_organization_cannot_be_changed(database: Database, clock: FakeClock) -> None:
    """They are neither retired nor made the default."""
    await make_organization(database, clock)
    group = await make_group(database, clock, "news")
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    for attempt in (_retire, _set_default):
        await refused(database, attempt(database, clock, group.group_id), "closed")
    assert await list_groups(ADMINISTRATOR, database, org_slug="acme") == [group]


@in_own_loop
async def test_groups_created_concurrently_have_consecutive_numbers(database_url: str, clock: FakeClock) -> None:
    """Two processes use no number twice and leave none out, and no attempt fails."""
    async with migrated(database_url) as one, opened(database_url) as other:
        await make_organization(one, clock)
        await asyncio.gather(*(make_group((one, other)[turn % 2], clock, f"group {turn}") for turn in range(20)))
        rows = await one.all(sql("SELECT group_no FROM groups ORDER BY group_no"))
        assert [row["group_no"] for row in rows] == list(range(1, 21))


@in_own_loop
async def test_a_group_retired_while_being_chosen_is_no_default(database_url: str, clock: FakeClock) -> None:
    """The default is a group in use, or there is none, whichever of the two comes first."""
    async with migrated(database_url) as one, opened(database_url) as other:
        await make_organization(one, clock)
        for turn in range(10):
            group = await make_group(one, clock, f"group {turn}")
            both = (_set_default(one, clock, group.group_id), _retire(other, clock, group.group_id))
            await asyncio.gather(*(both if turn % 2 else reversed(both)), return_exceptions=True)
            assert await default_group_id(one) is None


async def _rename(database: Database, clock: FakeClock, group_id: str, name: str) -> Group:
    return await rename_group(ADMINISTRATOR, database, clock, group_id=group_id, name=name)


async def _retire(database: Database, clock: FakeClock, group_id: str) -> Group:
    return await retire_group(ADMINISTRATOR, database, clock, group_id=group_id)


async def _set_default(database: Database, clock: FakeClock, group_id: str) -> Group:
    return await set_default_group(ADMINISTRATOR, database, clock, org_slug="acme", group_id=group_id)
