"""The rights of a person at this moment. docs/interface.md section D11."""

from stoplist.actor import ADMINISTER, Actor
from stoplist.staff.people import disable_person
from stoplist.staff.rights import current_person
from tests.builders import ADMINISTRATOR
from tests.staff.staff_fixture import StaffDeployment, with_staff


@with_staff
async def test_rights_are_those_of_this_moment(staff: StaffDeployment) -> None:
    """A disabled or unknown person has none."""
    await staff.organization()
    await staff.invite("ann@example.org", acme="admin")
    await staff.invite("root@example.org", is_administrator=True)
    ann = Actor(kind="person", id="ann@example.org", roles={"acme": "admin"})
    assert await current_person(staff.database, "ann@example.org") == ann
    assert (await current_person(staff.database, "root@example.org")).may == {ADMINISTER}
    assert await current_person(staff.database, "who@example.org") == Actor(kind="person", id="who@example.org")
    for email in ("ann@example.org", "root@example.org"):
        await disable_person(ADMINISTRATOR, staff.database, staff.clock, email=email)
        assert await current_person(staff.database, email) == Actor(kind="person", id=email)
