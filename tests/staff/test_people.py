"""Creating people and giving rights: who may, no way to take an account over, and an administrator always remains."""

import asyncio
from typing import Any

import pytest

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.organizations.organizations import close_organization
from stoplist.staff import invitations, links, people, roles, sessions
from tests.builders import ADMINISTRATOR, audit_rows, on_each_database, refused, value
from tests.constants import DAY_MS
from tests.staff.staff_fixture import PASSWORD, StaffDeployment, with_staff

COMMAND = ADMINISTRATOR


@with_staff
async def test_a_person_is_created_with_rights_and_a_link(staff: StaffDeployment) -> None:
    """The address is stored in its canonical form; the audit has the person, the role and the link."""
    await staff.organization()
    link = await people.create_person(
        COMMAND, staff.database, staff.clock, email=" Ann@Example.ORG", org_slug="acme", role="viewer"
    )
    person = link.person
    assert (person.email, person.roles, person.is_administrator) == ("ann@example.org", {"acme": "viewer"}, False)
    assert (person.has_password, person.has_two_step, person.is_disabled) == (False, False, False)
    assert (person.created_ms, person.last_sign_in_ms) == (staff.clock.now_ms(), None)
    assert link.expires_ms == staff.clock.now_ms() + DAY_MS
    assert [row.action for row in await audit_rows(staff.database)][1:] == [
        "person.create",
        "person.role",
        "person.link",
    ]
    assert link.link_token not in repr(await audit_rows(staff.database))
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM audit_organizations") == 4  # with the organization's


@with_staff
async def test_a_person_is_created_once(staff: StaffDeployment) -> None:
    """However the address is written; of many concurrent requests one succeeds."""
    attempts = [
        people.create_person(COMMAND, staff.database, staff.clock, email=email, is_administrator=True)
        for email in ["ann@example.org", "ANN@example.org"] * 4
    ]
    done = await asyncio.gather(*attempts, return_exceptions=True)
    (link,) = [one for one in done if not isinstance(one, BaseException)]
    assert link.person.email == "ann@example.org"
    failures = [one for one in done if isinstance(one, Refused)]
    assert [failure.field for failure in failures] == ["email"] * 7


@with_staff
async def test_an_invalid_address_is_refused(staff: StaffDeployment) -> None:
    """Source: docs/interface.md section D7."""
    for email in ("", "ann", "ann@localhost", "a\0b@example.org"):
        with pytest.raises(Refused) as failure:
            await people.create_person(COMMAND, staff.database, staff.clock, email=email, is_administrator=True)
        assert failure.value.field == "email"
        with pytest.raises(Missing):
            await people.show_person(COMMAND, staff.database, email=email)
        with pytest.raises(Missing):
            await people.disable_person(COMMAND, staff.database, staff.clock, email=email)


@with_staff
async def test_a_role_needs_an_organization_and_the_reverse(staff: StaffDeployment) -> None:
    """If the organization does not exist, no person is created."""
    for given in ({"org_slug": "acme"}, {"role": "viewer"}):
        await refused(staff.database, _create(staff, COMMAND, **given), "go together")
    with pytest.raises(Missing):
        await _create(staff, COMMAND, org_slug="acme", role="viewer")
    assert await people.list_people(COMMAND, staff.database) == []


@with_staff
async def test_only_administrators_manage_the_deployment(staff: StaffDeployment) -> None:
    """Source: docs/interface.md section D11, the table."""
    await staff.organization()
    admin = await staff.create("admin@example.org", acme="admin")
    await staff.create("victim@example.org", acme="viewer")
    of_victim: Any = {"email": "victim@example.org"}
    attempts = [
        _create(staff, admin),
        people.list_people(admin, staff.database),
        people.disable_person(admin, staff.database, staff.clock, **of_victim),
        people.enable_person(admin, staff.database, staff.clock, **of_victim),
        roles.set_administrator(admin, staff.database, staff.clock, **of_victim, is_administrator=True),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden):
            await attempt


@with_staff
async def test_an_administrator_adds_people_to_an_organization(staff: StaffDeployment) -> None:
    """A new person gets a link; a known person gets the role and no link. Admins of the organization invite."""
    await staff.organization()
    await staff.organization("beta")
    await staff.create("known@example.org", beta="admin")
    new, link = await _add(staff, COMMAND, "new@example.org")
    assert link is not None
    assert (new.roles, link.person) == ({"acme": "viewer"}, new)
    known, no_link = await _add(staff, COMMAND, "Known@example.org")
    assert no_link is None
    assert known.roles == {"acme": "viewer", "beta": "admin"}
    with pytest.raises(Forbidden):
        await _add(staff, await staff.create("admin@example.org", acme="admin"), "known@example.org")


@with_staff
async def test_a_person_added_concurrently_is_created_once(staff: StaffDeployment) -> None:
    await staff.organization()
    added = await asyncio.gather(*(_add(staff, COMMAND, "new@example.org") for _ in range(6)))
    assert len([link for _, link in added if link is not None]) == 1
    assert {person.email for person, _ in added} == {"new@example.org"}


@with_staff
async def test_each_operation_needs_rights_over_the_organization(staff: StaffDeployment) -> None:
    """A viewer gets Forbidden; for people of another organization this one is Missing."""
    await staff.organization()
    await staff.organization("beta")
    viewer = await staff.create("viewer@example.org", acme="viewer")
    outsider = await staff.create("outsider@example.org", beta="admin")
    for actor, error in ((viewer, Forbidden), (outsider, Missing)):
        attempts = [
            staff.offer(actor, "new@example.org"),
            _set_role(staff, actor, "viewer@example.org", "admin"),
            _set_role(staff, actor, "viewer@example.org", None),
            people.people_of(actor, staff.database, org_slug="acme"),
        ]
        for attempt in attempts:
            with pytest.raises(error):
                await attempt
    assert (await staff.person("viewer@example.org")).roles == {"acme": "viewer"}


@with_staff
async def test_invisible_people_look_like_missing_ones(staff: StaffDeployment) -> None:
    """The text is the same for a person of another organization and for one who does not exist."""
    await staff.organization()
    await staff.organization("beta")
    admin = await staff.create("admin@example.org", acme="admin")
    await staff.create("other@example.org", beta="viewer")
    texts = set()
    for email in ("other@example.org", "nobody@example.org"):
        attempts = [
            people.show_person(admin, staff.database, email=email),
            people.new_link(admin, staff.database, staff.clock, email=email),
            _set_role(staff, admin, email, "viewer"),
            _set_role(staff, admin, email, None),
        ]
        for attempt in attempts:
            with pytest.raises(Missing) as failure:
                await attempt
            texts.add(failure.value.text)
    assert len(texts) == 1
    assert (await staff.person("other@example.org")).roles == {"beta": "viewer"}


@with_staff
async def test_people_are_shown_with_the_roles_visible_to_the_actor(staff: StaffDeployment) -> None:
    """Admins see the people of their organizations with their roles there; people see all of their own roles."""
    await staff.organization()
    await staff.organization("beta")
    admin = await staff.create("admin@example.org", acme="admin")
    both = await staff.create("both@example.org", acme="viewer", beta="admin")
    assert [person.email for person in await people.people_of(admin, staff.database, org_slug="acme")] == [
        "admin@example.org",
        "both@example.org",
    ]
    seen = await people.show_person(admin, staff.database, email="both@example.org")
    assert seen.roles == {"acme": "viewer"}
    assert (await people.people_of(admin, staff.database, org_slug="acme"))[1] == seen
    assert (await people.show_person(both, staff.database, email=both.id)).roles == both.roles
    assert len(await people.list_people(COMMAND, staff.database)) == 2
    viewer = await staff.create("viewer@example.org", acme="viewer")
    assert (await people.show_person(viewer, staff.database, email=viewer.id)).email == viewer.id
    with pytest.raises(Missing):
        await people.show_person(viewer, staff.database, email="admin@example.org")


@with_staff
async def test_a_role_is_changed_and_taken_away(staff: StaffDeployment) -> None:
    """Each change is in the organization's audit once; setting the same role again is no change."""
    await staff.organization()
    admin = await staff.create("admin@example.org", acme="admin")
    await staff.create("ann@example.org", acme="viewer")
    before = len(await audit_rows(staff.database))
    for role in ("admin", "admin", None, None):
        if role is None and "acme" not in (await staff.person("ann@example.org")).roles:
            with pytest.raises(Missing):
                await _set_role(staff, admin, "ann@example.org", role)
            continue
        changed = await _set_role(staff, admin, "ann@example.org", role)
        assert changed.roles == ({} if role is None else {"acme": role})
    rows = (await audit_rows(staff.database))[before:]
    assert [(row.action, row.target, row.detail) for row in rows] == [
        ("person.role", "ann@example.org", {"org_slug": "acme", "role": "admin", "was": "viewer"}),
        ("person.role", "ann@example.org", {"org_slug": "acme", "role": None, "was": "admin"}),
    ]


@with_staff
async def test_a_role_in_a_closed_organization_can_be_taken_away(staff: StaffDeployment) -> None:
    """Its records stay, and people with a role can still see them."""
    await staff.organization()
    await staff.create("ann@example.org", acme="viewer")
    await close_organization(COMMAND, staff.database, staff.clock, slug="acme")
    assert (await staff.person("ann@example.org")).roles == {"acme": "viewer"}
    assert (await _set_role(staff, COMMAND, "ann@example.org", None)).roles == {}


@with_staff
async def test_people_cannot_take_their_own_rights_away(staff: StaffDeployment) -> None:
    """None of the operations does so; the command line may. An administrator may give up being a viewer."""
    await staff.organization()
    boss = await staff.administrator()
    admin = await staff.create("admin@example.org", acme="admin")
    attempts = [
        people.disable_person(boss, staff.database, staff.clock, email="Boss@example.org"),
        roles.set_administrator(boss, staff.database, staff.clock, email=boss.id, is_administrator=False),
        _set_role(staff, admin, "ADMIN@example.org", None),
        _set_role(staff, admin, admin.id, "viewer"),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden, match="your own account"):
            await attempt
    assert (await staff.person(admin.id)).roles == {"acme": "admin"}
    assert (await _set_role(staff, boss, boss.id, "viewer")).roles == {"acme": "viewer"}
    assert (await _set_role(staff, boss, boss.id, None)).roles == {}
    await roles.set_administrator(COMMAND, staff.database, staff.clock, email=boss.id, is_administrator=False)
    assert not (await staff.person(boss.id)).is_administrator


@with_staff
async def test_of_two_administrators_disabling_each_other_one_remains(staff: StaffDeployment) -> None:
    """The second is no longer an administrator when the second change is made."""
    pairs = [
        (await staff.administrator(f"one-{n}@example.org"), await staff.administrator(f"two-{n}@example.org"))
        for n in range(4)
    ]
    for one, two in pairs:
        await asyncio.gather(
            people.disable_person(one, staff.database, staff.clock, email=two.id),
            roles.set_administrator(two, staff.database, staff.clock, email=one.id, is_administrator=False),
            return_exceptions=True,
        )
        able = [
            person.is_administrator and not person.is_disabled
            for person in (await staff.person(one.id), await staff.person(two.id))
        ]
        assert able.count(True) == 1


@with_staff
async def test_a_person_let_in_by_an_admin_gets_no_rights_elsewhere(staff: StaffDeployment) -> None:
    """The admin may have invited an address of somebody else, used the link, and waited for more rights.

    In the organization itself the role may change. Using a link from an administrator makes the account trusted.
    """
    for slug in ("acme", "bolt", "cord"):
        await staff.organization(slug)
    admin = await staff.create("admin@example.org", acme="admin", cord="admin")
    bolt, boss = await staff.create("bolt@example.org", bolt="admin"), await staff.administrator()
    await staff.accept_by_link((await staff.offer(admin, "chief@example.org")).link_token)
    chief_actor = await staff.actor("chief@example.org")
    await staff.offer(bolt, chief_actor.id, "bolt")

    async def attempts_to_give_more() -> list[Any]:
        to_all = roles.set_administrator(
            boss, staff.database, staff.clock, email="chief@example.org", is_administrator=True
        )
        by_bolt = invitations.accept(chief_actor, staff.database, staff.clock, org_slug="bolt")
        by_boss = roles.set_role(
            boss, staff.database, staff.clock, email="chief@example.org", org_slug="bolt", role="admin"
        )
        return [by_bolt, by_boss, to_all]

    texts = []
    for attempt in await attempts_to_give_more():
        with pytest.raises(Refused, match=r"may hold the account|admin of another organization") as failure:
            await attempt
        texts.append(failure.value.text)
    assert ["admin@example.org" in text for text in texts] == [False, True, True]
    assert (await staff.person("chief@example.org")).roles == {"acme": "viewer"}
    await _set_role(staff, boss, "chief@example.org", "admin")
    await staff.offer(admin, chief_actor.id, "cord")
    await invitations.accept(chief_actor, staff.database, staff.clock, org_slug="cord")
    again = await people.new_link(boss, staff.database, staff.clock, email="chief@example.org")
    await staff.use_link(again.link_token)
    for attempt in await attempts_to_give_more():
        await attempt
    chief = await staff.person("chief@example.org")
    assert (chief.is_administrator, chief.roles) == (True, {"acme": "admin", "bolt": "admin", "cord": "viewer"})


@with_staff
async def test_a_former_administrator_makes_no_accounts_or_links(staff: StaffDeployment) -> None:
    """The right is checked when the change is made, not when the request arrived."""
    await staff.administrator("other@example.org")
    boss = await staff.administrator()
    await people.disable_person(COMMAND, staff.database, staff.clock, email=boss.id)
    attempts = [
        people.create_person(boss, staff.database, staff.clock, email="back@example.org", is_administrator=True),
        people.new_link(boss, staff.database, staff.clock, email="other@example.org"),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden, match="no longer"):
            await attempt
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM sign_in_links") == 0


@with_staff
async def test_the_administrator_right_is_given_and_taken_away(staff: StaffDeployment) -> None:
    """Each change is in the audit once."""
    boss = await staff.administrator()
    await staff.create("ann@example.org")
    before = len(await audit_rows(staff.database))
    for is_administrator in (True, True, False):
        changed = await roles.set_administrator(
            boss, staff.database, staff.clock, email="ann@example.org", is_administrator=is_administrator
        )
        assert changed.is_administrator == is_administrator
    details = [row.detail for row in (await audit_rows(staff.database))[before:]]
    assert details == [{"is_administrator": True}, {"is_administrator": False}]


# Links


@with_staff
async def test_an_admin_makes_no_link_to_take_an_account_over(staff: StaffDeployment) -> None:
    """The person must never have signed in, and have roles in the admin's organizations only."""
    await staff.organization()
    await staff.organization("beta")
    admin = await staff.create("admin@example.org", acme="admin")
    await staff.invite("new@example.org", acme="viewer")
    await staff.create("in@example.org", acme="viewer")
    await staff.invite("boss@example.org", acme="viewer", is_administrator=True)
    await staff.invite("both@example.org", acme="viewer", beta="viewer")
    await staff.invite("closed@example.org", acme="viewer")
    await people.disable_person(COMMAND, staff.database, staff.clock, email="closed@example.org")
    link = await people.new_link(admin, staff.database, staff.clock, email="new@example.org")
    assert await links.person_of_link(staff.database, staff.clock, link.link_token) is not None
    for email in ("in@example.org", "boss@example.org", "both@example.org", "closed@example.org", admin.id):
        with pytest.raises(Forbidden):
            await people.new_link(admin, staff.database, staff.clock, email=email)
    with pytest.raises(Forbidden):
        await people.new_link(admin, staff.database, staff.clock, email="new@example.org", without_two_step=True)
    viewer = await staff.create("viewer@example.org", acme="viewer")
    with pytest.raises(Missing):
        await people.new_link(viewer, staff.database, staff.clock, email="new@example.org")


@with_staff
async def test_a_right_given_by_others_ends_an_admins_link(staff: StaffDeployment) -> None:
    """The admin could use the link, and hold rights that the admin may not give."""
    await staff.organization()
    await staff.organization("beta")
    admin = await staff.create("admin@example.org", acme="admin")

    async def is_link_valid_after(giving: Any, email: str) -> bool:
        await staff.invite(email, acme="viewer")
        link = await people.new_link(admin, staff.database, staff.clock, email=email)
        await giving
        return await links.person_of_link(staff.database, staff.clock, link.link_token) is not None

    by_other = people.add_to_organization(
        COMMAND, staff.database, staff.clock, email="a@example.org", org_slug="beta", role="viewer"
    )
    to_all = roles.set_administrator(COMMAND, staff.database, staff.clock, email="b@example.org", is_administrator=True)
    assert not await is_link_valid_after(by_other, "a@example.org")
    assert not await is_link_valid_after(to_all, "b@example.org")
    assert await is_link_valid_after(_set_role(staff, admin, "c@example.org", "admin"), "c@example.org")
    invited = await staff.invite("d@example.org", acme="viewer")
    await _set_role(staff, admin, "d@example.org", "admin")
    assert await links.person_of_link(staff.database, staff.clock, invited.link_token) is not None


@with_staff
async def test_a_new_link_ends_the_earlier_ones(staff: StaffDeployment) -> None:
    """The password stays valid until the new link is used."""
    boss = await staff.administrator()
    first = await staff.invite("ann@example.org")
    second = await people.new_link(boss, staff.database, staff.clock, email="Ann@example.org")
    assert await links.person_of_link(staff.database, staff.clock, first.link_token) is None
    await staff.use_link(second.link_token)
    await people.new_link(boss, staff.database, staff.clock, email="ann@example.org")
    assert await staff.session("ann@example.org")


# Disabled accounts


@with_staff
async def test_disabling_takes_effect_at_once(staff: StaffDeployment) -> None:
    """This holds for sessions, for links, and for the correct password."""
    boss = await staff.administrator()
    await staff.create("ann@example.org")
    session_token = await staff.session("ann@example.org")
    link = await people.new_link(boss, staff.database, staff.clock, email="ann@example.org")
    assert await staff.is_alive(session_token)
    disabled = await people.disable_person(boss, staff.database, staff.clock, email="ann@example.org")
    assert disabled.is_disabled
    assert not await staff.is_alive(session_token)
    assert await links.person_of_link(staff.database, staff.clock, link.link_token) is None
    for attempt in (staff.use_link(link.link_token), staff.sign_in("ann@example.org")):
        with pytest.raises(Refused):
            await attempt
    with pytest.raises(Refused, match="disabled"):
        await people.new_link(boss, staff.database, staff.clock, email="ann@example.org")


@with_staff
async def test_enabling_brings_no_session_back(staff: StaffDeployment) -> None:
    """The password and the rights are as before; sessions and links stay ended."""
    await staff.organization()
    boss = await staff.administrator()
    await staff.create("ann@example.org", acme="viewer")
    session_token = await staff.session("ann@example.org")
    link = await people.new_link(boss, staff.database, staff.clock, email="ann@example.org")
    await people.disable_person(boss, staff.database, staff.clock, email="ann@example.org")
    await people.disable_person(boss, staff.database, staff.clock, email="ann@example.org")
    enabled = await people.enable_person(boss, staff.database, staff.clock, email="ann@example.org")
    assert (enabled.is_disabled, enabled.roles) == (False, {"acme": "viewer"})
    assert not await staff.is_alive(session_token)
    with pytest.raises(Refused, match="already been used"):
        await staff.use_link(link.link_token)
    assert await staff.is_alive(await staff.session("ann@example.org"))
    actions = [action for action, _ in await staff.actions()]
    assert (actions.count("person.disable"), actions.count("person.enable")) == (1, 1)


@with_staff
async def test_rights_take_effect_with_the_next_request(staff: StaffDeployment) -> None:
    """A session is read with the current roles."""
    await staff.organization()
    await staff.create("ann@example.org", acme="viewer")
    token = await staff.session("ann@example.org")

    async def rights() -> tuple[bool, dict[str, Any]]:
        found = await sessions.find_session(staff.database, staff.clock, token)
        assert found is not None
        return found.person.is_administrator, dict(found.person.roles)

    assert await rights() == (False, {"acme": "viewer"})
    await _set_role(staff, COMMAND, "ann@example.org", "admin")
    assert await rights() == (False, {"acme": "admin"})
    await _set_role(staff, COMMAND, "ann@example.org", None)
    await roles.set_administrator(COMMAND, staff.database, staff.clock, email="ann@example.org", is_administrator=True)
    assert await rights() == (True, {})


@on_each_database
async def test_passwords_and_links_are_stored_as_hashes(database: Database) -> None:
    """The content of the database is not enough to sign in."""
    staff = StaffDeployment(database)
    link = await staff.invite("ann@example.org")
    assert await value(database, "SELECT LENGTH(link_hash) AS n FROM sign_in_links") == 32
    await staff.use_link(link.link_token)
    kept = await value(database, "SELECT password_hash FROM people")
    assert kept.startswith("$argon2id$")
    assert PASSWORD not in kept


async def _create(staff: StaffDeployment, actor: Actor, **given: Any) -> None:
    await people.create_person(actor, staff.database, staff.clock, email="new@example.org", **given)


async def _add(staff: StaffDeployment, actor: Actor, email: str) -> Any:
    return await people.add_to_organization(
        actor, staff.database, staff.clock, email=email, org_slug="acme", role="viewer"
    )


async def _set_role(staff: StaffDeployment, actor: Actor, email: str, role: Any) -> Any:
    return await roles.set_role(actor, staff.database, staff.clock, email=email, org_slug="acme", role=role)
