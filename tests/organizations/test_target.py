"""The organization and group of a request: every row of the table in docs/interface.md section D5."""

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

# The groups of each organization. The default group is created last; `retired` used to be a default group too.
_GROUPS = {
    "acme": ("retired", "reminders", "news"),
    "beta": ("beta news",),
    "closed": ("closed news",),
    "others": ("others news",),
}

RequestedNames = tuple[str | None, str | None]
"""A slug, and a group by its name in the table above or by any text."""

ACCEPTED: dict[RequestedNames, tuple[str, str | None]] = {
    (None, None): ("acme", None),
    ("acme", None): ("acme", None),
    ("beta", None): ("beta", None),
    (None, "news"): ("acme", "news"),
    (None, "reminders"): ("acme", "reminders"),
    (None, "beta news"): ("beta", "beta news"),
    ("acme", "reminders"): ("acme", "reminders"),
    ("beta", "beta news"): ("beta", "beta news"),
}
"""The organization and group that requests of the key mean, which covers `acme` (its default), `beta` and `closed`."""

REFUSED_SLUGS: list[RequestedNames] = [
    ("others", None), ("closed", None), ("nobody", None), ("", None), ("ACME", None), ("acme ", None), ("-", None),
    ("a" * 64, None), ("ä", None), ("others", "others news"), ("others", "news"), ("closed", "closed news"),
    ("nobody", "nothing"), ("nobody", "news"),
]  # fmt: skip
"""Refused because of the slug, which is repeated in the error, whatever the group is."""

REFUSED_GROUPS: list[RequestedNames] = [
    (None, "others news"), (None, "closed news"), (None, "retired"), (None, UNKNOWN_GROUP), (None, ""), (None, "grp_"),
    (None, "ä"), ("acme", "beta news"), ("acme", "others news"), ("acme", "closed news"), ("acme", "retired"),
    ("acme", UNKNOWN_GROUP), ("beta", "news"), ("acme", ""), ("acme", "acme"), ("acme", "1"),
]  # fmt: skip
"""Refused because of the group, which is repeated in the error."""


class FourOrganizations(NamedTuple):
    """Four organizations, their groups by name, and a key."""

    database: Database
    groups: dict[str, str]
    client_id: str

    async def target(self, org_slug: str | None, group: str | None) -> Target:
        group_id = self.groups.get(group, group) if group is not None else None
        return await find_target(self.database, self.client_id, org_slug=org_slug, group_id=group_id)

    async def refusal(self, org_slug: str | None, group: str | None) -> dict[str, Any]:
        """Return the fields beside the error."""
        with pytest.raises(UnauthorizedOrganization) as refusal:
            await self.target(org_slug, group)
        assert not any(sent in refusal.value.text for sent in ("acme", "beta", "closed", "others"))
        return refusal.value.extra


async def make_four_organizations(database: Database, clock: FakeClock) -> FourOrganizations:
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
    return FourOrganizations(database, groups, key.credential.client_id)


@on_each_database
async def test_a_request_selects_organization_and_group(database: Database, clock: FakeClock) -> None:
    """One that names neither means the default organization; a group alone, the organization of the group."""
    four_organizations = await make_four_organizations(database, clock)
    for names, (slug, group) in ACCEPTED.items():
        target = await four_organizations.target(*names)
        assert target.org_slug == slug, names
        assert (target.group and target.group.group_id) == (group and four_organizations.groups[group]), names
        default = four_organizations.groups["news"] if slug == "acme" else None
        assert (target.default_group and target.default_group.group_id) == default, names


@on_each_database
async def test_names_of_others_are_refused_like_unknown_ones(database: Database, clock: FakeClock) -> None:
    """Targets of others, closed, retired, unknown and malformed ones: the error repeats the wrong name as sent."""
    four_organizations = await make_four_organizations(database, clock)
    for slug, group in REFUSED_SLUGS:
        assert await four_organizations.refusal(slug, group) == {"org_slug": slug}, (slug, group)
    for slug, group in REFUSED_GROUPS:
        sent = four_organizations.groups.get(str(group), group)
        assert await four_organizations.refusal(slug, group) == {"group_id": sent}, (slug, group)


@on_each_database
async def test_a_closed_default_organization_is_named_in_the_error(database: Database, clock: FakeClock) -> None:
    """It is named even if the request named none; the key's other organizations still work."""
    four_organizations = await make_four_organizations(database, clock)
    await close_organization(ADMINISTRATOR, database, clock, slug="acme")
    assert await four_organizations.refusal(None, None) == {"org_slug": "acme"}
    assert await four_organizations.refusal("acme", "news") == {"org_slug": "acme"}
    assert await four_organizations.refusal(None, "news") == {"group_id": four_organizations.groups["news"]}
    assert (await four_organizations.target("beta", None)).org_slug == "beta"


@on_each_database
async def test_a_retired_group_is_no_longer_the_default(database: Database, clock: FakeClock) -> None:
    """The organization then has none."""
    four_organizations = await make_four_organizations(database, clock)
    await retire_group(ADMINISTRATOR, database, clock, group_id=four_organizations.groups["news"])
    assert (await four_organizations.target("acme", None)).default_group is None
    assert await four_organizations.refusal("acme", "news") == {"group_id": four_organizations.groups["news"]}


@on_each_database
async def test_groups_are_numbered_from_one_in_their_organization(database: Database, clock: FakeClock) -> None:
    """0 stands for all groups; retired ones keep their number."""
    four_organizations = await make_four_organizations(database, clock)
    organization_id = (await four_organizations.target("acme", None)).organization_id
    numbers = await group_ids(database, organization_id)
    assert numbers == {number: four_organizations.groups[name] for number, name in enumerate(_GROUPS["acme"], 1)}
    target = await four_organizations.target(None, "reminders")
    assert target.group is not None
    assert numbers[target.group.number] == target.group.group_id


# People


@on_each_database
async def test_a_person_selects_organization_and_group(database: Database, clock: FakeClock) -> None:
    """A key selects them too, but a person always names the organization; commands and administrators may name any."""
    four_organizations = await make_four_organizations(database, clock)
    admin = Actor(kind="person", id="a@x.org", roles={"acme": "admin"})
    for actor in (admin, ADMINISTRATOR):
        for group in (None, "news", "reminders"):
            group_id = None if group is None else four_organizations.groups[group]
            target = await find_target_of_person(actor, database, org_slug="acme", group_id=group_id)
            assert target == await find_target(
                database, four_organizations.client_id, org_slug="acme", group_id=group_id
            )


@on_each_database
async def test_a_person_may_not_select_others(database: Database, clock: FakeClock) -> None:
    """Missing if the person does not see it, Forbidden if they only see it, Refused if closed, retired or another's."""
    four_organizations = await make_four_organizations(database, clock)
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
                person,
                database,
                org_slug=slug,
                group_id=None if group is None else four_organizations.groups.get(group, group),
            )
        assert (type(refusal.value), refusal.value.field) == (kind, field), (slug, group)
    with pytest.raises(Missing):
        await find_target_of_person(ADMINISTRATOR, database, org_slug="nobody", group_id=None)


@on_each_database
async def test_people_see_the_organizations_of_their_roles(database: Database, clock: FakeClock) -> None:
    """They are in the order of slugs, closed ones included; administrators see all.

    A role in an unknown organization shows nothing.
    """
    await make_four_organizations(database, clock)
    person = Actor(kind="person", id="a@x.org", roles={"closed": "viewer", "acme": "admin", "nobody": "viewer"})
    nobody = Actor(kind="person", id="b@x.org")
    for actor, slugs in ((person, ["acme", "closed"]), (nobody, []), (ADMINISTRATOR, sorted(_GROUPS))):
        assert [organization.slug for organization in await list_organizations(actor, database)] == slugs


@on_each_database
async def test_group_names_are_found_by_organization_and_number(database: Database, clock: FakeClock) -> None:
    """Retired groups included."""
    four_organizations = await make_four_organizations(database, clock)
    ids = {
        organization.slug: organization.organization_id
        for organization in await list_organizations(ADMINISTRATOR, database)
    }
    names = await group_names(database, [ids["acme"], ids["beta"], ids["acme"]])
    assert names == {
        (ids[slug], number): GroupName(four_organizations.groups[name], name)
        for slug in ("acme", "beta")
        for number, name in enumerate(_GROUPS[slug], 1)
    }
    assert await group_names(database, []) == {}
