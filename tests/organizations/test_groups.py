"""Groups of messages: made, retired and chosen as the default, within one organization."""

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
from tests.fakes import FakeClock


async def make_group(
    database: Database, clock: FakeClock, name: str, *, org_slug: str = "acme", is_default: bool = False
) -> Group:
    return await create_group(ADMINISTRATOR, database, clock, org_slug=org_slug, name=name, is_default=is_default)


async def default_of(database: Database, slug: str = "acme") -> str | None:
    return (await find_organization(database, slug)).default_group_id


@on_each_database
async def test_a_group_is_as_it_was_asked_for(database: Database, clock: FakeClock) -> None:
    """Section D5: id `grp_` and 22 base62 characters, no default unless asked, in use."""
    await make_organization(database, clock)
    made = await make_group(database, clock, " Reminders ")
    assert re.fullmatch(r"grp_[0-9A-Za-z]{22}", made.group_id)
    assert made == Group(
        group_id=made.group_id,
        org_slug="acme",
        name="Reminders",
        is_default=False,
        created_ms=clock.now_ms(),
        retired_ms=None,
    )
    assert await default_of(database) is None


@on_each_database
async def test_a_new_default_takes_the_place_of_the_old(database: Database, clock: FakeClock) -> None:
    """An organization has one at most."""
    await make_organization(database, clock, default_group="news")
    made = await make_group(database, clock, "letters", is_default=True)
    assert made.is_default
    assert await default_of(database) == made.group_id
    groups = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert [(group.name, group.is_default) for group in groups] == [("news", False), ("letters", True)]


@on_each_database
async def test_a_name_is_unique_in_its_organization(database: Database, clock: FakeClock) -> None:
    """Retired groups included; another organization may have the same."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug, default_group="news")
    before = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    await refused(database, make_group(database, clock, "news", is_default=True), "already")
    await refused(database, make_group(database, clock, " news "), "already")
    assert await list_groups(ADMINISTRATOR, database, org_slug="acme") == before
    await retire_group(ADMINISTRATOR, database, clock, group_id=before[0].group_id)
    await refused(database, make_group(database, clock, "news"), "retired one")


@on_each_database
async def test_what_cannot_be_a_name_is_refused(database: Database, clock: FakeClock) -> None:
    """Of groups as of organizations."""
    await make_organization(database, clock)
    for name in ("", " ", "a\nb", "x" * 201):
        await refused(database, make_group(database, clock, name), "name of a group")


@on_each_database
async def test_groups_are_numbered_within_their_organization(database: Database, clock: FakeClock) -> None:
    """From 1, in the order in which they were made, which is also that of the list; 0 is for all groups."""
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
async def test_a_new_name_leaves_the_id(database: Database, clock: FakeClock) -> None:
    """Requests go by the id. The audit says what the name was; the same name again is no change."""
    made = await make_organization(database, clock, default_group="news")
    assert made.default_group_id is not None
    group_id = made.default_group_id
    renamed = await _rename(database, clock, group_id, " Letters ")
    assert (renamed.group_id, renamed.name, renamed.is_default) == (group_id, "Letters", True)
    row = (await audit_rows(database))[-1]
    assert (row.action, row.detail) == ("group.rename", {"org_slug": "acme", "name": "Letters", "was": "news"})
    before = await audit_rows(database)
    assert await _rename(database, clock, group_id, "Letters") == renamed
    assert await audit_rows(database) == before


@on_each_database
async def test_a_new_name_is_unique_in_its_organization_too(database: Database, clock: FakeClock) -> None:
    """Retired groups included; one that is free again, or another organization's, may be had."""
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


def test_of_many_that_take_a_name_at_once_one_has_it(database_url: str, clock: FakeClock) -> None:
    """Two processes rename and create: one group of that name, and no error but the refusal."""

    async def body() -> None:
        async with migrated(database_url) as one, opened(database_url) as other:
            await make_organization(one, clock)
            groups = [await make_group(one, clock, f"group {number}") for number in range(6)]
            tries = [_rename((one, other)[at % 2], clock, group.group_id, "news") for at, group in enumerate(groups)]
            tries += [make_group((one, other)[at % 2], clock, "news") for at in range(4)]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            assert {type(answer) for answer in answers} == {Group, Refused}
            names = [group.name for group in await list_groups(ADMINISTRATOR, one, org_slug="acme")]
            assert names.count("news") == sum(isinstance(answer, Group) for answer in answers) == 1

    asyncio.run(body())


@on_each_database
async def test_an_organization_may_be_left_without_a_default(database: Database, clock: FakeClock) -> None:
    """The group itself stays in use; the audit says which it was, and twice is no change."""
    made = await make_organization(database, clock, default_group="news")
    left = await unset_default_group(ADMINISTRATOR, database, clock, org_slug="acme")
    assert left.default_group_id is None
    assert await default_of(database) is None
    [group] = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert (group.is_default, group.retired_ms) == (False, None)
    before = await audit_rows(database)
    assert (before[-1].action, before[-1].detail) == (
        "organization.unset_default_group",
        {"group_id": made.default_group_id},
    )
    assert await unset_default_group(ADMINISTRATOR, database, clock, org_slug="acme") == left
    assert await audit_rows(database) == before


@on_each_database
async def test_a_retired_group_stays(database: Database, clock: FakeClock) -> None:
    """In the list, with its name and when it was retired; the default remains another's."""
    await make_organization(database, clock, default_group="news")
    group = await make_group(database, clock, "letters")
    clock.advance(5)
    retired = await retire_group(ADMINISTRATOR, database, clock, group_id=group.group_id)
    assert retired.retired_ms == clock.now_ms()
    listed = await list_groups(ADMINISTRATOR, database, org_slug="acme")
    assert [(it.name, it.is_default, it.retired_ms is None) for it in listed] == [
        ("news", True, True),
        ("letters", False, False),
    ]


@on_each_database
async def test_retiring_the_default_leaves_none(database: Database, clock: FakeClock) -> None:
    """Section D5; the audit says that it was the default."""
    made = await make_organization(database, clock, default_group="news")
    await make_group(database, clock, "letters")
    assert made.default_group_id is not None
    retired = await retire_group(ADMINISTRATOR, database, clock, group_id=made.default_group_id)
    assert not retired.is_default
    assert await default_of(database) is None
    assert (await audit_rows(database))[-1].detail == {"org_slug": "acme", "was_default": True}


@on_each_database
async def test_a_retired_group_is_no_default_and_is_not_retired_again(database: Database, clock: FakeClock) -> None:
    """It is retired for good; neither try is recorded."""
    await make_organization(database, clock)
    group = await make_group(database, clock, "news")
    retired = await retire_group(ADMINISTRATOR, database, clock, group_id=group.group_id)
    clock.advance(5)
    await refused(database, _retire(database, clock, group.group_id), "retired already")
    await refused(database, _set_default(database, clock, group.group_id), "retired")
    assert await list_groups(ADMINISTRATOR, database, org_slug="acme") == [retired]


@on_each_database
async def test_the_default_is_chosen_among_the_organization_s_own(database: Database, clock: FakeClock) -> None:
    """One of another organization is refused; choosing the default again is no change."""
    await make_organization(database, clock, "acme")
    await make_organization(database, clock, "bolt", default_group="news")
    group, of_bolt = await make_group(database, clock, "letters"), await default_of(database, "bolt")
    assert of_bolt is not None
    chosen = await _set_default(database, clock, group.group_id)
    assert chosen.is_default
    assert await default_of(database) == group.group_id
    await refused(database, _set_default(database, clock, of_bolt), "another organization")
    before = await audit_rows(database)
    assert (await _set_default(database, clock, group.group_id)).is_default
    assert await audit_rows(database) == before


@on_each_database
async def test_an_unknown_group_is_refused_with_the_way_to_see_them(database: Database, clock: FakeClock) -> None:
    """Also what cannot be an id at all."""
    await make_organization(database, clock)
    for group_id in ("grp_0000000000000000000000", "news", "", "x" * 1_000, "grp_\0", "grp_\ud800"):
        for attempt in (_retire, _set_default):
            await refused(database, attempt(database, clock, group_id), "stoplist group list")


@on_each_database
async def test_the_groups_of_a_closed_organization_stay_as_they_are(database: Database, clock: FakeClock) -> None:
    """They are neither retired nor made the default."""
    await make_organization(database, clock)
    group = await make_group(database, clock, "news")
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    for attempt in (_retire, _set_default):
        await refused(database, attempt(database, clock, group.group_id), "closed")
    assert await list_groups(ADMINISTRATOR, database, org_slug="acme") == [group]


def test_groups_made_at_once_each_have_their_number(database_url: str, clock: FakeClock) -> None:
    """Two processes: no number is given twice, none is left out, and nobody meets an error."""

    async def body() -> None:
        async with migrated(database_url) as one, opened(database_url) as other:
            await make_organization(one, clock)
            await asyncio.gather(*(make_group((one, other)[turn % 2], clock, f"group {turn}") for turn in range(20)))
            rows = await one.all(sql("SELECT group_no FROM groups ORDER BY group_no"))
            assert [row["group_no"] for row in rows] == list(range(1, 21))

    asyncio.run(body())


def test_a_group_retired_while_it_is_chosen_is_not_left_the_default(database_url: str, clock: FakeClock) -> None:
    """Whichever comes first, an organization's default is a group in use, or there is none."""

    async def body() -> None:
        async with migrated(database_url) as one, opened(database_url) as other:
            await make_organization(one, clock)
            for turn in range(10):
                group = await make_group(one, clock, f"group {turn}")
                both = (_set_default(one, clock, group.group_id), _retire(other, clock, group.group_id))
                await asyncio.gather(*(both if turn % 2 else reversed(both)), return_exceptions=True)
                assert await default_of(one) is None

    asyncio.run(body())


async def _rename(database: Database, clock: FakeClock, group_id: str, name: str) -> Group:
    return await rename_group(ADMINISTRATOR, database, clock, group_id=group_id, name=name)


async def _retire(database: Database, clock: FakeClock, group_id: str) -> Group:
    return await retire_group(ADMINISTRATOR, database, clock, group_id=group_id)


async def _set_default(database: Database, clock: FakeClock, group_id: str) -> Group:
    return await set_default_group(ADMINISTRATOR, database, clock, org_slug="acme", group_id=group_id)
