"""The time of a change: taken behind the lock of its feed, and never before that of an earlier change.

Source: docs/interface.md section D6.
"""

import asyncio
from typing import Any

import pytest

from stoplist.db import Unit
from stoplist.records.reversal import reverse
from tests.builders import ADMINISTRATOR
from tests.db.unit_fixture import another_process
from tests.deployment import in_loop, in_own_loop
from tests.unsubscribes.partner import OptOutDeployment, Organization, opt_out_deployment, out, shown


async def recorded(organization: Organization) -> list[str]:
    """Return when each record was recorded, in the order of changes."""
    return [record.recorded_at for record in await organization.feed()]


@in_loop
async def test_recorded_times_never_fall_within_a_feed(deployment: OptOutDeployment) -> None:
    """The clock of one host may be behind that of another; other feeds have times of their own."""
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    first_ms = deployment.now_ms
    submission = await organization.submit(out("a@x.org"), out("b@x.org"))
    deployment.clock.jump(-5)
    await organization.submit(out("c@x.org"))
    await reverse(ADMINISTRATOR, deployment.stores, submission.submission_id or "")
    await other.submit(out("a@x.org"))
    assert await recorded(organization) == [shown(first_ms)] * 3
    assert await recorded(other) == [shown(first_ms - 5_000)]
    deployment.clock.advance(5.001)
    await organization.submit(out("d@x.org"))
    assert (await recorded(organization))[-1] == shown(first_ms + 1)


@in_loop
async def test_the_time_of_a_change_is_taken_behind_the_lock(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time spent in the queue comes before it; the submission itself was received earlier."""
    organization = await deployment.new_organization()
    received_ms = deployment.now_ms
    write = deployment.database.write

    async def late(unit: Unit[Any], **options: Any) -> Any:
        deployment.clock.advance(4)
        return await write(unit, **options)

    monkeypatch.setattr(deployment.database, "write", late)
    await organization.submit(out("a@x.org"))
    assert await recorded(organization) == [shown(received_ms + 4_000)]
    assert [row["received_ms"] for row in await organization.rows("submissions", "submission_id")] == [received_ms]


@in_own_loop
async def test_the_time_is_that_at_which_the_lock_was_obtained(postgresql_url: str) -> None:
    """Another process may hold the lock for seconds."""
    async with opt_out_deployment(postgresql_url) as deployment, another_process(postgresql_url) as other:
        organization = await deployment.new_organization()
        await organization.submit(out("a@x.org"))
        before_ms = deployment.now_ms
        await other.connection.execute("BEGIN")
        await other.connection.execute("SELECT * FROM feeds FOR UPDATE")
        submitting = asyncio.create_task(organization.submit(out("b@x.org")))
        await other.wait_for_blocked(1)
        deployment.clock.advance(3)
        await other.release()
        await submitting
        assert await recorded(organization) == [shown(before_ms), shown(before_ms + 3_000)]
        (feed,) = await organization.rows("feeds", "feed_id")
        assert feed["last_recorded_ms"] == before_ms + 3_000
