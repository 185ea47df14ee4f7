"""Invitations: an organization's admin learns nothing of an account before its person accepts."""

import asyncio
from typing import Any

import msgspec
import pytest

from stoplist.errors import Forbidden, Missing, Refused
from stoplist.organizations.organizations import close_organization
from stoplist.staff import invitations, people, roles
from tests.builders import ADMINISTRATOR, audit_rows, value
from tests.constants import DAY_S
from tests.staff.staff_fixture import StaffDeployment, with_staff

NEW, KNOWN = "new@example.org", "known@example.org"


@with_staff
async def test_the_answer_is_the_same_with_and_without_an_account(staff: StaffDeployment) -> None:
    """Nor does the page of the link differ, and nobody is among the people before they accept."""
    admin = await _organizations(staff)
    await staff.create(KNOWN, beta="admin")
    offers = [await staff.offer(admin, email) for email in (NEW, KNOWN)]
    shown = [await invitations.invitation_of_link(staff.database, staff.clock, offer.link_token) for offer in offers]
    assert shown == [offer.invitation for offer in offers]
    assert len({msgspec.structs.replace(offer.invitation, email="") for offer in offers}) == 1
    assert [person.email for person in await people.people_of(admin, staff.database, org_slug="acme")] == [admin.id]
    assert (await staff.person(KNOWN)).roles == {"beta": "admin"}
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM people") == 2
    open_ones = await invitations.list_invitations(admin, staff.database, staff.clock, org_slug="acme")
    assert [one.email for one in open_ones] == [KNOWN, NEW]


@with_staff
async def test_a_person_with_an_account_accepts_once(staff: StaffDeployment) -> None:
    """One of several concurrent answers finds the invitation. The audit has the offer and the answer."""
    admin = await _organizations(staff)
    known = await staff.create(KNOWN, beta="viewer")
    await staff.offer(admin, KNOWN, role="admin")
    (own,) = await invitations.own_invitations(known, staff.database, staff.clock)
    assert (own.org_slug, own.role, own.invited_by) == ("acme", "admin", admin.id)
    answers = (_accept(staff, known) for _ in range(4))
    done = await asyncio.gather(*answers, return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["Missing", "Missing", "Missing", "NoneType"]
    assert (await staff.person(KNOWN)).roles == {"acme": "admin", "beta": "viewer"}
    answered = [(row.action, row.actor) for row in await audit_rows(staff.database) if "invit" in row.action]
    assert answered == [("person.invite", f"person {admin.id}"), ("person.invitation_accept", f"person {KNOWN}")]


@with_staff
async def test_a_new_person_accepts_by_the_link(staff: StaffDeployment) -> None:
    """The link is good once, and needs a password that is hard to guess."""
    token = (await staff.offer(await _organizations(staff), NEW)).link_token
    with pytest.raises(Refused) as failure:
        await staff.accept_by_link(token, "password1234")
    assert failure.value.field == "password"
    signed_in = await staff.accept_by_link(token)
    assert (signed_in.person.roles, signed_in.person.has_password) == ({"acme": "viewer"}, True)
    assert await staff.is_alive(signed_in.session_token)
    with pytest.raises(Refused, match="answered"):
        await staff.accept_by_link(token)


@with_staff
async def test_a_link_replaced_while_it_is_used_is_refused(
    staff: StaffDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not take the newer invitation, which may offer another role."""
    admin = await _organizations(staff)
    token, hash_password = (await staff.offer(admin, NEW)).link_token, staff.hashing.hash

    async def replace_meanwhile(password: bytes) -> str:
        await staff.offer(admin, NEW, role="admin")
        return await hash_password(password)

    monkeypatch.setattr(staff.hashing, "hash", replace_meanwhile)
    with pytest.raises(Refused, match="replaced"):
        await staff.accept_by_link(token)
    assert await value(staff.database, "SELECT COUNT(*) AS n FROM people WHERE email = 'new@example.org'") == 0


@with_staff
async def test_the_link_opens_no_account_that_exists(staff: StaffDeployment) -> None:
    """The admin who made the link may hold it. An account without a password may have every right already."""
    admin = await _organizations(staff)
    await staff.create(KNOWN, beta="admin")
    await staff.invite(NEW, is_administrator=True)
    for email in (KNOWN, NEW):
        token = (await staff.offer(admin, email)).link_token
        with pytest.raises(Refused, match="has an account"):
            await staff.accept_by_link(token, "an attacker's pass phrase")
        assert "acme" not in (await staff.person(email)).roles
    assert await staff.session(KNOWN)


@with_staff
async def test_a_link_ends_after_a_day_and_an_invitation_after_a_week(staff: StaffDeployment) -> None:
    admin = await _organizations(staff)
    known, token = await staff.create(KNOWN), (await staff.offer(admin, NEW)).link_token
    await staff.offer(admin, KNOWN)
    staff.clock.advance(DAY_S)
    with pytest.raises(Refused, match="24 hours"):
        await staff.accept_by_link(token)
    staff.clock.advance(6 * DAY_S)
    with pytest.raises(Missing):
        await _accept(staff, known)
    await staff.offer(admin, KNOWN)
    staff.clock.advance(7 * DAY_S - 1)
    await _accept(staff, known)


@with_staff
async def test_an_invitation_ends_in_each_way(staff: StaffDeployment) -> None:
    """Withdrawn, declined, or replaced by a newer one, whose role counts."""
    admin = await _organizations(staff)
    known = await staff.create(KNOWN)
    of_acme: Any = {"org_slug": "acme"}
    for end in (
        invitations.withdraw(admin, staff.database, staff.clock, email=KNOWN, **of_acme),
        invitations.decline(known, staff.database, staff.clock, **of_acme),
    ):
        await staff.offer(admin, KNOWN)
        await end
        with pytest.raises(Missing):
            await _accept(staff, known)
    replaced = (await staff.offer(admin, NEW)).link_token
    token = (await staff.offer(admin, NEW, role="admin")).link_token
    with pytest.raises(Refused):
        await staff.accept_by_link(replaced)
    assert (await staff.accept_by_link(token)).person.roles == {"acme": "admin"}


@with_staff
async def test_the_inviter_must_still_have_the_right(staff: StaffDeployment) -> None:
    """The right counts when the person accepts: a disabled or removed admin leaves no way back in."""
    admin = await _organizations(staff)
    known = await staff.create(KNOWN)
    token = (await staff.offer(admin, NEW)).link_token
    await staff.offer(admin, KNOWN)

    async def assert_nobody_gets_in() -> None:
        for attempt in (_accept(staff, known), staff.accept_by_link(token)):
            with pytest.raises(Refused, match="may no longer give roles"):
                await attempt
        assert await value(staff.database, "SELECT COUNT(*) AS n FROM people WHERE email = 'new@example.org'") == 0

    await people.disable_person(ADMINISTRATOR, staff.database, staff.clock, email=admin.id)
    await assert_nobody_gets_in()
    await people.enable_person(ADMINISTRATOR, staff.database, staff.clock, email=admin.id)
    await roles.set_role(ADMINISTRATOR, staff.database, staff.clock, email=admin.id, org_slug="acme", role="viewer")
    await assert_nobody_gets_in()


@with_staff
async def test_only_admins_of_an_open_organization_invite(staff: StaffDeployment) -> None:
    """They cannot invite somebody who has a role there, or whose invitation would lower one given meanwhile."""
    admin = await _organizations(staff)
    known = await staff.create(KNOWN)
    await staff.offer(admin, KNOWN)
    await roles.set_role(ADMINISTRATOR, staff.database, staff.clock, email=KNOWN, org_slug="acme", role="admin")
    await _accept(staff, known)
    assert (await staff.person(KNOWN)).roles == {"acme": "admin"}
    with pytest.raises(Refused, match="has a role in the organization already"):
        await staff.offer(admin, KNOWN)
    viewer, outsider = await staff.create("v@example.org", acme="viewer"), await staff.create("o@example.org")
    for actor, error in ((viewer, Forbidden), (outsider, Missing)):
        with pytest.raises(error):
            await staff.offer(actor, NEW)
    token = (await staff.offer(admin, NEW)).link_token
    await close_organization(ADMINISTRATOR, staff.database, staff.clock, slug="acme")
    for attempt in (staff.offer(admin, "late@example.org"), staff.accept_by_link(token)):
        with pytest.raises(Refused, match="closed"):
            await attempt


async def _organizations(staff: StaffDeployment) -> Any:
    """Make two organizations, and return an admin of the first."""
    await staff.organization()
    await staff.organization("beta")
    return await staff.create("admin@example.org", acme="admin")


async def _accept(staff: StaffDeployment, person: Any) -> None:
    await invitations.accept(person, staff.database, staff.clock, org_slug="acme")
