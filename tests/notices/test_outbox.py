"""Notices are added in the transaction of what they tell of (docs/interface.md section D16)."""

import pytest

from stoplist.db import Transaction
from stoplist.notices import outbox
from stoplist.notices.model import KEY_BEHIND
from stoplist.staff.people import disable_person
from tests.builders import ADMINISTRATOR, execute, make_organization, value
from tests.deployment import in_loop
from tests.notices.operator import NoticeDeployment


@in_loop
async def test_a_notice_goes_to_the_webhook_and_to_whom_it_concerns(deployment: NoticeDeployment) -> None:
    """Administrators, and admins of its organizations; nobody who is disabled, only views, or is of another one."""
    acme = await deployment.new_organization()
    other = await deployment.new_organization()
    await deployment.person("admin@example.org", is_administrator=True)
    await deployment.person("gone@example.org", is_administrator=True)
    await disable_person(ADMINISTRATOR, deployment.database, deployment.clock, email="gone@example.org")
    await deployment.person("ann@example.org", org_slug=acme.slug, role="admin")
    await deployment.person("viewer@example.org", org_slug=acme.slug, role="viewer")
    await deployment.person("bob@example.org", org_slug=other.slug, role="admin")
    await deployment.add(organizations=[acme.slug])
    assert await deployment.recipients() == ["admin@example.org", "ann@example.org", "webhook"]
    await deployment.add()
    assert (await deployment.recipients()).count("ann@example.org") == 1


@in_loop
async def test_a_notice_has_the_body_of_standard_webhooks(deployment: NoticeDeployment) -> None:
    organization = await deployment.new_organization()
    notice_id = await deployment.add(organizations=[organization.slug], import_id="imp_1", rows=7)
    (notice,) = await deployment.notices()
    assert notice.notice_id == notice_id
    assert notice_id.startswith("ntc_")
    assert notice.body == (
        '{"type":"import.ended","timestamp":"2047-01-15T08:00:00.000Z",'
        f'"data":{{"import_id":"imp_1","rows":7,"organizations":["{organization.slug}"]}}}}'
    )


@in_loop
async def test_what_is_rolled_back_tells_nobody(deployment: NoticeDeployment) -> None:
    async def fail(transaction: Transaction) -> None:
        await outbox.add(transaction, KEY_BEHIND, "svc_ci_1", at_ms=deployment.now_ms)
        raise LookupError

    with pytest.raises(LookupError):
        await deployment.database.write(fail)
    assert await deployment.notices() == []
    assert await deployment.deliveries() == []


@in_loop
async def test_a_state_makes_one_notice_a_change(deployment: NoticeDeployment) -> None:
    """Neither the normal state of a new subject nor a state that lasts makes one."""

    async def note(state: str, subject: str = "svc_ci_1") -> bool:
        async def change(transaction: Transaction) -> bool:
            return await outbox.state_changed(
                transaction, KEY_BEHIND, subject, state, normal="in_time", at_ms=deployment.now_ms, client_id=subject
            )

        deployment.clock.advance(1)
        return await deployment.database.write(change)

    states = ["in_time", "behind", "behind", "far_behind", "in_time", "in_time", "behind"]
    assert [await note(state) for state in states] == [False, True, False, True, True, False, True]
    assert await note("behind", "svc_ci_2")
    notices = await deployment.notices()
    assert [notice.data["state"] for notice in notices] == ["behind", "far_behind", "in_time", "behind", "behind"]
    assert notices[0].data == {"state": "behind", "client_id": "svc_ci_1"}


@in_loop
async def test_a_change_is_found_by_the_statement_that_stores_it(deployment: NoticeDeployment) -> None:
    """So that of two processes that see the same change, the second finds none."""

    async def behind(transaction: Transaction) -> tuple[bool, bool]:
        changes = [
            await outbox.state_changed(transaction, KEY_BEHIND, "a", "behind", normal="in_time", at_ms=1)
            for _ in range(2)
        ]
        return changes[0], changes[1]

    assert await deployment.database.write(behind) == (True, False)
    assert await value(deployment.database, "SELECT state FROM notice_states") == "behind"


@in_loop
async def test_a_notice_of_a_closed_organization_reaches_administrators(deployment: NoticeDeployment) -> None:
    await make_organization(deployment.database, deployment.clock, "closed-soon")
    await deployment.person("admin@example.org", is_administrator=True)
    await execute(deployment.database, "UPDATE organizations SET closed_ms = 1 WHERE slug = 'closed-soon'")
    await deployment.add(organizations=["closed-soon"])
    assert await deployment.recipients() == ["admin@example.org", "webhook"]
