"""Which organization and group a request or a person means: every row of the table in docs/interface.md section D5."""

from typing import Any, NamedTuple

import pytest

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.errors import Forbidden, Missing, Refused, UnauthorizedOrganization
from stoplist.organizations.groups import create_group, retire_group
from stoplist.organizations.organizations import close_organization, list_organizations
from stoplist.organizations.target import (
    GroupName,
    Target,
    find_target,
    find_target_of_person,
    group_ids,
    group_names,
)
from tests.builders import ADMINISTRATOR, make_key, make_organization, on_each_database
from tests.fakes import FakeClock

UNKNOWN_GROUP = "grp_" + "0" * 22

# The groups of each organization; the default one is made last, and `retired` once was one, too.
_GROUPS = {
    "acme": ("retired", "reminders", "news"),
    "beta": ("beta news",),
    "closed": ("closed news",),
    "others": ("others news",),
}

Asked = tuple[str | None, str | None]
"""A slug, and a group by its name in the table above, or as it is."""

ACCEPTED: dict[Asked, tuple[str, str | None]] = {
    (None, None): ("acme", None),
    ("acme", None): ("acme", None),
    ("beta", None): ("beta", None),
    (None, "news"): ("acme", "news"),
    (None, "reminders"): ("acme", "reminders"),
    (None, "beta news"): ("beta", "beta news"),
    ("acme", "reminders"): ("acme", "reminders"),
    ("beta", "beta news"): ("beta", "beta news"),
}
"""What the key of `acme` (its default), `beta` and `closed` may mean: the organization, and the group by its name."""

BY_SLUG: list[Asked] = [
    ("others", None), ("closed", None), ("nobody", None), ("", None), ("ACME", None), ("acme ", None), ("-", None),
    ("a" * 64, None), ("ä", None), ("others", "others news"), ("others", "news"), ("closed", "closed news"),
    ("nobody", "nothing"), ("nobody", "news"),
]  # fmt: skip
"""Refused for the slug, which is then repeated, whatever the group is."""

BY_GROUP: list[Asked] = [
    (None, "others news"), (None, "closed news"), (None, "retired"), (None, UNKNOWN_GROUP), (None, ""), (None, "grp_"),
    (None, "ä"), ("acme", "beta news"), ("acme", "others news"), ("acme", "closed news"), ("acme", "retired"),
    ("acme", UNKNOWN_GROUP), ("beta", "news"), ("acme", ""), ("acme", "acme"), ("acme", "1"),
]  # fmt: skip
"""Refused for the group, which is then repeated."""


class World(NamedTuple):
    """Four organizations, their groups by name, and a key."""

    database: Database
    groups: dict[str, str]
    client_id: str

    async def target(self, org_slug: str | None, group: str | None) -> Target:
        group_id = self.groups.get(group, group) if group is not None else None
        return await find_target(self.database, self.client_id, org_slug=org_slug, group_id=group_id)

    async def refusal(self, org_slug: str | None, group: str | None) -> dict[str, Any]:
        """What stands beside the refusal."""
        with pytest.raises(UnauthorizedOrganization) as refusal:
            await self.target(org_slug, group)
        assert not any(sent in refusal.value.text for sent in ("acme", "beta", "closed", "others"))
        return refusal.value.extra


async def made(database: Database, clock: FakeClock) -> World:
    groups: dict[str, str] = {}
    for slug, names in _GROUPS.items():
        await make_organization(database, clock, slug)
        for name in names:
            group = await create_group(
                ADMINISTRATOR, database, clock, org_slug=slug, name=name, is_default=slug != "beta"
            )
            groups[name] = group.group_id
    await retire_group(ADMINISTRATOR, database, clock, group_id=groups["retired"])
    key = await make_key(database, clock, "acme", "beta", "closed", default_organization="acme")
    await close_organization(ADMINISTRATOR, database, clock, slug="closed")
    return World(database, groups, key.credential.client_id)


@on_each_database
async def test_what_a_request_names_selects_organization_and_group(database: Database, clock: FakeClock) -> None:
    """Neither: the default organization; a group alone: its organization; both: both."""
    world = await made(database, clock)
    for asked, (slug, group) in ACCEPTED.items():
        target = await world.target(*asked)
        assert target.org_slug == slug, asked
        assert (target.group and target.group.group_id) == (group and world.groups[group]), asked
        default = world.groups["news"] if slug == "acme" else None
        assert (target.default_group and target.default_group.group_id) == default, asked


@on_each_database
async def test_what_is_not_ours_is_refused_like_what_does_not_exist(database: Database, clock: FakeClock) -> None:
    """Another's, a closed, a retired, an unknown and a malformed one alike; the wrong one is repeated as sent."""
    world = await made(database, clock)
    for slug, group in BY_SLUG:
        assert await world.refusal(slug, group) == {"org_slug": slug}, (slug, group)
    for slug, group in BY_GROUP:
        sent = world.groups.get(str(group), group)
        assert await world.refusal(slug, group) == {"group_id": sent}, (slug, group)


@on_each_database
async def test_a_closed_default_organization_is_named_where_nothing_was_sent(
    database: Database, clock: FakeClock
) -> None:
    """The partner learns which one is meant; its other organizations still answer."""
    world = await made(database, clock)
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    assert await world.refusal(None, None) == {"org_slug": "acme"}
    assert await world.refusal("acme", "news") == {"org_slug": "acme"}
    assert await world.refusal(None, "news") == {"group_id": world.groups["news"]}
    assert (await world.target("beta", None)).org_slug == "beta"


@on_each_database
async def test_a_retired_default_group_is_no_default_any_more(database: Database, clock: FakeClock) -> None:
    """The organization is left without one."""
    world = await made(database, clock)
    await retire_group(ADMINISTRATOR, database, clock, group_id=world.groups["news"])
    assert (await world.target("acme", None)).default_group is None
    assert await world.refusal("acme", "news") == {"group_id": world.groups["news"]}


@on_each_database
async def test_groups_are_numbered_from_one_in_their_organization(database: Database, clock: FakeClock) -> None:
    """0 stands for all groups; retired ones keep their number."""
    world = await made(database, clock)
    organization_id = (await world.target("acme", None)).organization_id
    numbers = await group_ids(database, organization_id)
    assert numbers == {number: world.groups[name] for number, name in enumerate(_GROUPS["acme"], 1)}
    target = await world.target(None, "reminders")
    assert target.group is not None
    assert numbers[target.group.number] == target.group.group_id


# People


@on_each_database
async def test_what_a_person_names_selects_organization_and_group(database: Database, clock: FakeClock) -> None:
    """As for a key, but that the organization is always named; commands and administrators may mean any."""
    world = await made(database, clock)
    admin = Actor(kind="person", id="a@x.org", roles={"acme": "admin"})
    for actor in (admin, ADMINISTRATOR):
        for group in (None, "news", "reminders"):
            group_id = None if group is None else world.groups[group]
            target = await find_target_of_person(actor, database, org_slug="acme", group_id=group_id)
            assert target == await find_target(database, world.client_id, org_slug="acme", group_id=group_id)


@on_each_database
async def test_what_a_person_may_not_mean_is_refused(database: Database, clock: FakeClock) -> None:
    """Missing what they do not see, forbidden what they only see, refused what is closed, retired or another's."""
    world = await made(database, clock)
    person = Actor(kind="person", id="a@x.org", roles={"acme": "admin", "beta": "viewer", "closed": "admin"})
    for slug, group, kind, field in (
        ("others", None, Missing, None),
        ("nobody", None, Missing, None),
        ("\0", None, Missing, None),
        ("beta", None, Forbidden, None),
        ("beta", "news", Forbidden, None),
        ("closed", None, Refused, "org_slug"),
        ("closed", "closed news", Refused, "org_slug"),
        ("acme", "retired", Refused, "group_id"),
        ("acme", "beta news", Refused, "group_id"),
        ("acme", UNKNOWN_GROUP, Refused, "group_id"),
        ("acme", "\0", Refused, "group_id"),
    ):
        with pytest.raises(Refused) as refusal:
            await find_target_of_person(
                person, database, org_slug=slug, group_id=None if group is None else world.groups.get(group, group)
            )
        assert (type(refusal.value), refusal.value.field) == (kind, field), (slug, group)
    with pytest.raises(Missing):
        await find_target_of_person(ADMINISTRATOR, database, org_slug="nobody", group_id=None)


@on_each_database
async def test_people_see_the_organizations_of_their_roles_and_administrators_all(
    database: Database, clock: FakeClock
) -> None:
    """Closed ones too, by slug; a role in what does not exist shows nothing."""
    await made(database, clock)
    person = Actor(kind="person", id="a@x.org", roles={"closed": "viewer", "acme": "admin", "nobody": "viewer"})
    nobody = Actor(kind="person", id="b@x.org")
    for actor, slugs in ((person, ["acme", "closed"]), (nobody, []), (ADMINISTRATOR, sorted(_GROUPS))):
        assert [one.slug for one in await list_organizations(actor, database)] == slugs


@on_each_database
async def test_groups_have_their_names_in_each_organization(database: Database, clock: FakeClock) -> None:
    """By organization and number, retired ones too."""
    world = await made(database, clock)
    seen = {one.slug: one.organization_id for one in await list_organizations(ADMINISTRATOR, database)}
    names = await group_names(database, [seen["acme"], seen["beta"], seen["acme"]])
    assert names == {
        (seen[slug], number): GroupName(world.groups[name], name)
        for slug in ("acme", "beta")
        for number, name in enumerate(_GROUPS[slug], 1)
    }
    assert await group_names(database, []) == {}
