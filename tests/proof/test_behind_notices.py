"""A key that falls behind, or catches up, makes one notice (docs/interface.md sections D14 and D16)."""

from typing import Any

import msgspec
import pytest

from stoplist.proof.behind_notices import notify_of_keys_behind
from tests.builders import execute, sql
from tests.constants import HOUR_S
from tests.deployment import SharedDatabase, in_loop
from tests.fakes import FakeClock
from tests.proof.test_propagation import HOURS, mark, present
from tests.unsubscribes.partner import OptOutDeployment, Organization, out

_BODIES = sql("SELECT body FROM notices WHERE kind = 'key.behind' ORDER BY created_ms, notice_id")


@pytest.fixture
def deployment(shared_database: SharedDatabase, clock: FakeClock) -> OptOutDeployment:
    """Return a deployment on either database, without feeds of other tests."""
    deployment = OptOutDeployment.on(shared_database, clock)
    for table in ("notice_deliveries", "notices", "notice_states", "feed_followers", "feed_positions"):
        shared_database.run(execute(deployment.database, f"DELETE FROM {table}"))  # noqa: S608
    return deployment


async def told(deployment: OptOutDeployment) -> list[dict[str, Any]]:
    """Look twice, as two processes do; return the facts of all notices so far."""
    for _ in range(2):
        await notify_of_keys_behind(deployment.stores, hours=HOURS)
    return [msgspec.json.decode(row["body"])["data"] for row in await deployment.database.all(_BODIES)]


async def fall_behind(deployment: OptOutDeployment) -> Organization:
    """Return an organization whose only key took the first change, and not the second in time."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    await present(organization, 1)
    await organization.submit(out("b@x.org"))
    assert await told(deployment) == []
    deployment.clock.advance(HOURS * HOUR_S + 1)
    return organization


@in_loop
async def test_a_key_that_falls_behind_is_told_once(deployment: OptOutDeployment) -> None:
    """It is told once more when it has caught up."""
    organization = await fall_behind(deployment)
    facts = {
        "client_id": organization.partner.id,
        "channel": "email",
        "group_id": None,
        "organizations": [organization.slug],
    }
    behind = facts | {"state": "behind", "changes_behind": 1}
    assert await told(deployment) == [behind]
    deployment.clock.advance(HOUR_S)
    assert await told(deployment) == [behind]
    await present(organization, 2)
    assert await told(deployment) == [behind, facts | {"state": "in_time", "changes_behind": 0}]


@in_loop
async def test_a_key_that_is_no_longer_watched_makes_no_notice(deployment: OptOutDeployment) -> None:
    """It has not caught up; if it is watched again, it is told again."""
    organization = await fall_behind(deployment)
    assert len(await told(deployment)) == 1
    await mark(organization, "stopped")
    assert len(await told(deployment)) == 1
    await mark(organization, None)
    assert [one["state"] for one in await told(deployment)] == ["behind", "behind"]
