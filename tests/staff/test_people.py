"""Who may make people and give rights, that nobody takes an account over, and that somebody able always remains."""

import asyncio
from typing import Any

import pytest

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.organizations.organizations import close_organization
from stoplist.staff import links, people, sessions
from tests.builders import ADMINISTRATOR, audit_rows, on_each_database, refused, value
from tests.staff.staff_fixture import PASSWORD, Office, in_an_office

COMMAND = ADMINISTRATOR


@in_an_office
async def test_a_person_is_made_with_rights_and_a_link(office: Office) -> None:
    """The address is kept in its canonical form; the audit has the person, the role and the link."""
    await office.organization()
    made = await people.create_person(
        COMMAND, office.database, office.clock, email=" Ann@Example.ORG", org_slug="acme", role="viewer"
    )
    person = made.person
    assert (person.email, person.roles, person.is_administrator) == ("ann@example.org", {"acme": "viewer"}, False)
    assert (person.has_password, person.has_two_step, person.is_disabled) == (False, False, False)
    assert (person.created_ms, person.last_sign_in_ms) == (office.clock.now_ms(), None)
    assert made.expires_ms == office.clock.now_ms() + 86_400_000
    assert [row.action for row in await audit_rows(office.database)][1:] == [
        "person.create",
        "person.role",
        "person.link",
    ]
    assert made.link_token not in repr(await audit_rows(office.database))
    assert await value(office.database, "SELECT COUNT(*) AS n FROM audit_organizations") == 4  # with the organization's


@in_an_office
async def test_somebody_is_made_once(office: Office) -> None:
    """However the address is written, and of many at once one makes him."""
    attempts = [
        people.create_person(COMMAND, office.database, office.clock, email=email, is_administrator=True)
        for email in ["ann@example.org", "ANN@example.org"] * 4
    ]
    done = await asyncio.gather(*attempts, return_exceptions=True)
    (made,) = [one for one in done if not isinstance(one, BaseException)]
    assert made.person.email == "ann@example.org"
    failures = [one for one in done if isinstance(one, Refused)]
    assert [failure.field for failure in failures] == ["email"] * 7


@in_an_office
async def test_what_is_no_address_is_nobodys(office: Office) -> None:
    """Source: docs/interface.md section D7."""
    for email in ("", "ann", "ann@localhost", "a\0b@example.org"):
        with pytest.raises(Refused) as failure:
            await people.create_person(COMMAND, office.database, office.clock, email=email, is_administrator=True)
        assert failure.value.field == "email"
        with pytest.raises(Missing):
            await people.show_person(COMMAND, office.database, email=email)
        with pytest.raises(Missing):
            await people.disable_person(COMMAND, office.database, office.clock, email=email)


@in_an_office
async def test_a_role_needs_its_organization_and_the_reverse(office: Office) -> None:
    """And nobody is left behind where the organization is not there."""
    for given in ({"org_slug": "acme"}, {"role": "viewer"}):
        await refused(office.database, _create(office, COMMAND, **given), "go together")
    with pytest.raises(Missing):
        await _create(office, COMMAND, org_slug="acme", role="viewer")
    assert await people.list_people(COMMAND, office.database) == []


@in_an_office
async def test_only_administrators_do_what_concerns_the_deployment(office: Office) -> None:
    """Source: docs/interface.md section D11, the table."""
    await office.organization()
    admin = await office.hire("admin@example.org", acme="admin")
    await office.hire("victim@example.org", acme="viewer")
    of_victim: Any = {"email": "victim@example.org"}
    attempts = [
        _create(office, admin),
        people.list_people(admin, office.database),
        people.disable_person(admin, office.database, office.clock, **of_victim),
        people.enable_person(admin, office.database, office.clock, **of_victim),
        people.set_administrator(admin, office.database, office.clock, **of_victim, is_administrator=True),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden):
            await attempt


@in_an_office
async def test_an_admin_adds_people_to_his_organization(office: Office) -> None:
    """Somebody new comes with a link; somebody known gets the role and no link, so that nobody takes him over."""
    await office.organization()
    await office.organization("beta")
    admin = await office.hire("admin@example.org", acme="admin")
    await office.hire("known@example.org", beta="admin")
    new, link = await _add(office, admin, "new@example.org")
    assert link is not None
    assert (new.roles, link.person) == ({"acme": "viewer"}, new)
    known, no_link = await _add(office, admin, "Known@example.org")
    assert no_link is None
    # Of the other organization this admin sees nothing.
    assert known.roles == {"acme": "viewer"}
    assert (await office.person("known@example.org")).roles == {"acme": "viewer", "beta": "admin"}


@in_an_office
async def test_of_many_that_add_the_same_person_one_makes_him(office: Office) -> None:
    """The others find him there."""
    await office.organization()
    added = await asyncio.gather(*(_add(office, COMMAND, "new@example.org") for _ in range(6)))
    assert len([link for _, link in added if link is not None]) == 1
    assert {person.email for person, _ in added} == {"new@example.org"}


@in_an_office
async def test_rights_over_an_organization_are_asked_for_by_each_operation(office: Office) -> None:
    """A viewer is told that he may not; whoever is of another organization that there is none."""
    await office.organization()
    await office.organization("beta")
    viewer = await office.hire("viewer@example.org", acme="viewer")
    outsider = await office.hire("outsider@example.org", beta="admin")
    for actor, error in ((viewer, Forbidden), (outsider, Missing)):
        attempts = [
            _add(office, actor, "new@example.org"),
            _set_role(office, actor, "viewer@example.org", "admin"),
            _set_role(office, actor, "viewer@example.org", None),
            people.people_of(actor, office.database, org_slug="acme"),
        ]
        for attempt in attempts:
            with pytest.raises(error):
                await attempt
    assert (await office.person("viewer@example.org")).roles == {"acme": "viewer"}


@in_an_office
async def test_who_is_missing_looks_like_who_is_not_seen(office: Office) -> None:
    """The same text for somebody of another organization and for nobody."""
    await office.organization()
    await office.organization("beta")
    admin = await office.hire("admin@example.org", acme="admin")
    await office.hire("other@example.org", beta="viewer")
    texts = set()
    for email in ("other@example.org", "nobody@example.org"):
        attempts = [
            people.show_person(admin, office.database, email=email),
            people.new_link(admin, office.database, office.clock, email=email),
            _set_role(office, admin, email, "viewer"),
            _set_role(office, admin, email, None),
        ]
        for attempt in attempts:
            with pytest.raises(Missing) as failure:
                await attempt
            texts.add(failure.value.text)
    assert len(texts) == 1
    assert (await office.person("other@example.org")).roles == {"beta": "viewer"}


@in_an_office
async def test_people_are_shown_as_far_as_the_actor_sees(office: Office) -> None:
    """An admin: those of his organizations, with their roles there; oneself: everything; a viewer: oneself."""
    await office.organization()
    await office.organization("beta")
    admin = await office.hire("admin@example.org", acme="admin")
    both = await office.hire("both@example.org", acme="viewer", beta="admin")
    assert [person.email for person in await people.people_of(admin, office.database, org_slug="acme")] == [
        "admin@example.org",
        "both@example.org",
    ]
    seen = await people.show_person(admin, office.database, email="both@example.org")
    assert seen.roles == {"acme": "viewer"}
    assert (await people.people_of(admin, office.database, org_slug="acme"))[1] == seen
    assert (await people.show_person(both, office.database, email=both.id)).roles == both.roles
    assert len(await people.list_people(COMMAND, office.database)) == 2
    viewer = await office.hire("viewer@example.org", acme="viewer")
    assert (await people.show_person(viewer, office.database, email=viewer.id)).email == viewer.id
    with pytest.raises(Missing):
        await people.show_person(viewer, office.database, email="admin@example.org")


@in_an_office
async def test_a_role_is_changed_and_taken_away(office: Office) -> None:
    """Each change is in the audit of its organization once; what is so already is no change."""
    await office.organization()
    admin = await office.hire("admin@example.org", acme="admin")
    await office.hire("ann@example.org", acme="viewer")
    before = len(await audit_rows(office.database))
    for role in ("admin", "admin", None, None):
        if role is None and "acme" not in (await office.person("ann@example.org")).roles:
            with pytest.raises(Missing):
                await _set_role(office, admin, "ann@example.org", role)
            continue
        changed = await _set_role(office, admin, "ann@example.org", role)
        assert changed.roles == ({} if role is None else {"acme": role})
    rows = (await audit_rows(office.database))[before:]
    assert [(row.action, row.target, row.detail) for row in rows] == [
        ("person.role", "ann@example.org", {"org_slug": "acme", "role": "admin", "was": "viewer"}),
        ("person.role", "ann@example.org", {"org_slug": "acme", "role": None, "was": "admin"}),
    ]


@in_an_office
async def test_people_can_leave_a_closed_organization(office: Office) -> None:
    """Its records stay, and so does the question who may see them."""
    await office.organization()
    await office.hire("ann@example.org", acme="viewer")
    await close_organization(COMMAND, office.database, office.clock, slug="acme")
    assert (await office.person("ann@example.org")).roles == {"acme": "viewer"}
    assert (await _set_role(office, COMMAND, "ann@example.org", None)).roles == {}


@in_an_office
async def test_nobody_takes_his_own_rights_away_on_the_pages(office: Office) -> None:
    """Neither by one way nor by another; the command line may."""
    await office.organization()
    boss = await office.administrator()
    admin = await office.hire("admin@example.org", acme="admin")
    attempts = [
        people.disable_person(boss, office.database, office.clock, email="Boss@example.org"),
        people.set_administrator(boss, office.database, office.clock, email=boss.id, is_administrator=False),
        _set_role(office, admin, "ADMIN@example.org", None),
        _set_role(office, admin, admin.id, "viewer"),
        _add(office, admin, "Admin@example.org"),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden, match="to himself"):
            await attempt
    assert (await office.person(admin.id)).roles == {"acme": "admin"}
    await people.set_administrator(COMMAND, office.database, office.clock, email=boss.id, is_administrator=False)
    assert not (await office.person(boss.id)).is_administrator


@in_an_office
async def test_of_two_administrators_who_disable_each_other_one_remains(office: Office) -> None:
    """The second is none any more when his turn comes, whatever he was when he asked."""
    pairs = [
        (await office.administrator(f"one-{n}@example.org"), await office.administrator(f"two-{n}@example.org"))
        for n in range(4)
    ]
    for one, two in pairs:
        await asyncio.gather(
            people.disable_person(one, office.database, office.clock, email=two.id),
            people.set_administrator(two, office.database, office.clock, email=one.id, is_administrator=False),
            return_exceptions=True,
        )
        able = [
            person.is_administrator and not person.is_disabled
            for person in (await office.person(one.id), await office.person(two.id))
        ]
        assert able.count(True) == 1


@in_an_office
async def test_whom_an_organizations_admin_let_in_gets_no_right_elsewhere_by_his_address_alone(office: Office) -> None:
    """The admin may have typed an address that is not his, used the link himself, and waited for it to be given more.

    In the organization itself the role may change; a link of an administrator that is used makes the account good.
    """
    for slug in ("acme", "bolt", "cord"):
        await office.organization(slug)
    admin = await office.hire("admin@example.org", acme="admin", cord="admin")
    bolt, boss = await office.hire("bolt@example.org", bolt="admin"), await office.administrator()
    _, link = await _add(office, admin, "chief@example.org")
    assert link is not None
    await office.use_link(link.link_token)

    async def more() -> list[Any]:
        to_all = people.set_administrator(
            boss, office.database, office.clock, email="chief@example.org", is_administrator=True
        )
        by_bolt = people.add_to_organization(
            bolt, office.database, office.clock, email="chief@example.org", org_slug="bolt", role="viewer"
        )
        by_boss = people.set_role(
            boss, office.database, office.clock, email="chief@example.org", org_slug="bolt", role="admin"
        )
        return [by_bolt, by_boss, to_all]

    texts = []
    for attempt in await more():
        with pytest.raises(Refused, match="may hold the account") as failure:
            await attempt
        texts.append(failure.value.text)
    assert ["admin@example.org" in text for text in texts] == [False, True, True]
    assert (await office.person("chief@example.org")).roles == {"acme": "viewer"}
    await _set_role(office, boss, "chief@example.org", "admin")
    await people.add_to_organization(
        admin, office.database, office.clock, email="chief@example.org", org_slug="cord", role="viewer"
    )
    again = await people.new_link(boss, office.database, office.clock, email="chief@example.org")
    await office.use_link(again.link_token)
    for attempt in await more():
        await attempt
    chief = await office.person("chief@example.org")
    assert (chief.is_administrator, chief.roles) == (True, {"acme": "admin", "bolt": "admin", "cord": "viewer"})


@in_an_office
async def test_whoever_is_no_administrator_any_more_leaves_no_way_back(office: Office) -> None:
    """Neither an account nor a link: what counts is what he is when the change is made, not when he asked."""
    await office.administrator("other@example.org")
    boss = await office.administrator()
    await people.disable_person(COMMAND, office.database, office.clock, email=boss.id)
    attempts = [
        people.create_person(boss, office.database, office.clock, email="back@example.org", is_administrator=True),
        people.new_link(boss, office.database, office.clock, email="other@example.org"),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden, match="any more"):
            await attempt
    assert await value(office.database, "SELECT COUNT(*) AS n FROM sign_in_links") == 0


@in_an_office
async def test_an_administrator_is_made_and_unmade(office: Office) -> None:
    """In the audit of the deployment, once each."""
    boss = await office.administrator()
    await office.hire("ann@example.org")
    before = len(await audit_rows(office.database))
    for is_administrator in (True, True, False):
        changed = await people.set_administrator(
            boss, office.database, office.clock, email="ann@example.org", is_administrator=is_administrator
        )
        assert changed.is_administrator == is_administrator
    details = [row.detail for row in (await audit_rows(office.database))[before:]]
    assert details == [{"is_administrator": True}, {"is_administrator": False}]


# Links


@in_an_office
async def test_an_admin_makes_no_link_by_which_he_could_take_over(office: Office) -> None:
    """Only for somebody who was never in, whose rights all lie with him: everybody else is an administrator's."""
    await office.organization()
    await office.organization("beta")
    admin = await office.hire("admin@example.org", acme="admin")
    await office.invite("new@example.org", acme="viewer")
    await office.hire("in@example.org", acme="viewer")
    await office.invite("boss@example.org", acme="viewer", is_administrator=True)
    await office.invite("both@example.org", acme="viewer", beta="viewer")
    await office.invite("closed@example.org", acme="viewer")
    await people.disable_person(COMMAND, office.database, office.clock, email="closed@example.org")
    link = await people.new_link(admin, office.database, office.clock, email="new@example.org")
    assert await links.look_at_link(office.database, office.clock, link.link_token) is not None
    for email in ("in@example.org", "boss@example.org", "both@example.org", "closed@example.org", admin.id):
        with pytest.raises(Forbidden):
            await people.new_link(admin, office.database, office.clock, email=email)
    with pytest.raises(Forbidden):
        await people.new_link(admin, office.database, office.clock, email="new@example.org", without_two_step=True)
    viewer = await office.hire("viewer@example.org", acme="viewer")
    with pytest.raises(Missing):
        await people.new_link(viewer, office.database, office.clock, email="new@example.org")


@in_an_office
async def test_a_link_of_an_admin_dies_when_somebody_else_gives_its_person_a_right(office: Office) -> None:
    """He could go in with it, and have rights that are not his to give."""
    await office.organization()
    await office.organization("beta")
    admin = await office.hire("admin@example.org", acme="admin")
    other = await office.hire("other@example.org", beta="admin")

    async def is_alive_after(giving: Any, email: str) -> bool:
        _, link = await _add(office, admin, email)
        assert link is not None
        await giving
        return await links.look_at_link(office.database, office.clock, link.link_token) is not None

    by_other = people.add_to_organization(
        other, office.database, office.clock, email="a@example.org", org_slug="beta", role="viewer"
    )
    to_all = people.set_administrator(
        COMMAND, office.database, office.clock, email="b@example.org", is_administrator=True
    )
    assert not await is_alive_after(by_other, "a@example.org")
    assert not await is_alive_after(to_all, "b@example.org")
    assert await is_alive_after(_set_role(office, admin, "c@example.org", "admin"), "c@example.org")
    invited = await office.invite("d@example.org", acme="viewer")
    await _set_role(office, admin, "d@example.org", "admin")
    assert await links.look_at_link(office.database, office.clock, invited.link_token) is not None


@in_an_office
async def test_a_new_link_ends_the_earlier_ones(office: Office) -> None:
    """The password of before stays good until the new one is used."""
    boss = await office.administrator()
    first = await office.invite("ann@example.org")
    second = await people.new_link(boss, office.database, office.clock, email="Ann@example.org")
    assert await links.look_at_link(office.database, office.clock, first.link_token) is None
    await office.use_link(second.link_token)
    await people.new_link(boss, office.database, office.clock, email="ann@example.org")
    assert await office.session("ann@example.org")


# The closed door


@in_an_office
async def test_a_closed_door_holds_at_once(office: Office) -> None:
    """For the very next look at a session, for links, and for the right password."""
    boss = await office.administrator()
    await office.hire("ann@example.org")
    session_token = await office.session("ann@example.org")
    link = await people.new_link(boss, office.database, office.clock, email="ann@example.org")
    assert await office.is_alive(session_token)
    disabled = await people.disable_person(boss, office.database, office.clock, email="ann@example.org")
    assert disabled.is_disabled
    assert not await office.is_alive(session_token)
    assert await links.look_at_link(office.database, office.clock, link.link_token) is None
    for attempt in (office.use_link(link.link_token), office.sign_in("ann@example.org")):
        with pytest.raises(Refused):
            await attempt
    with pytest.raises(Refused, match="disabled"):
        await people.new_link(boss, office.database, office.clock, email="ann@example.org")


@in_an_office
async def test_an_opened_door_brings_no_session_back(office: Office) -> None:
    """The password and the rights of before are good; sessions and links stay ended."""
    await office.organization()
    boss = await office.administrator()
    await office.hire("ann@example.org", acme="viewer")
    session_token = await office.session("ann@example.org")
    await people.disable_person(boss, office.database, office.clock, email="ann@example.org")
    await people.disable_person(boss, office.database, office.clock, email="ann@example.org")
    enabled = await people.enable_person(boss, office.database, office.clock, email="ann@example.org")
    assert (enabled.is_disabled, enabled.roles) == (False, {"acme": "viewer"})
    assert not await office.is_alive(session_token)
    assert await office.is_alive(await office.session("ann@example.org"))
    actions = [action for action, _ in await office.actions()]
    assert (actions.count("person.disable"), actions.count("person.enable")) == (1, 1)


@in_an_office
async def test_rights_hold_for_the_very_next_request(office: Office) -> None:
    """A session is read with the roles of that moment."""
    await office.organization()
    await office.hire("ann@example.org", acme="viewer")
    token = await office.session("ann@example.org")

    async def rights() -> tuple[bool, dict[str, Any]]:
        found = await sessions.find_session(office.database, office.clock, token)
        assert found is not None
        return found.person.is_administrator, dict(found.person.roles)

    assert await rights() == (False, {"acme": "viewer"})
    await _set_role(office, COMMAND, "ann@example.org", "admin")
    assert await rights() == (False, {"acme": "admin"})
    await _set_role(office, COMMAND, "ann@example.org", None)
    await people.set_administrator(
        COMMAND, office.database, office.clock, email="ann@example.org", is_administrator=True
    )
    assert await rights() == (True, {})


@on_each_database
async def test_no_password_and_no_link_is_kept_as_it_is(database: Database) -> None:
    """What is in the database opens nothing."""
    office = Office(database)
    made = await office.invite("ann@example.org")
    assert await value(database, "SELECT LENGTH(link_hash) AS n FROM sign_in_links") == 32
    await office.use_link(made.link_token)
    kept = await value(database, "SELECT password_hash FROM people")
    assert kept.startswith("$argon2id$")
    assert PASSWORD not in kept


async def _create(office: Office, actor: Actor, **given: Any) -> None:
    await people.create_person(actor, office.database, office.clock, email="new@example.org", **given)


async def _add(office: Office, actor: Actor, email: str) -> Any:
    return await people.add_to_organization(
        actor, office.database, office.clock, email=email, org_slug="acme", role="viewer"
    )


async def _set_role(office: Office, actor: Actor, email: str, role: Any) -> Any:
    return await people.set_role(actor, office.database, office.clock, email=email, org_slug="acme", role=role)
