"""Noting and writing the positions of readers. Source: docs/interface.md section D14, Propagation."""

import asyncio
from itertools import islice, permutations
from typing import Any

import pytest

from stoplist.errors import StoreUnavailable
from stoplist.maintenance.after_restore import after_restore
from stoplist.proof.positions import Positions
from stoplist.unsubscribes.feed import Feed, find_feed_by_id
from tests.builders import ADMINISTRATOR, contents, migrated
from tests.constants import MINUTE_MS
from tests.db.unit_fixture import another_process
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.unsubscribes.partner import OptOutDeployment, Organization, out

READER = ("svc_ci_reader", 0)


class Reading:
    """A feed with ten changes, and what processes note of its readers."""

    def __init__(self, organization: Organization) -> None:
        self.organization = organization
        self.database = organization.deployment.database
        self.began_ms = organization.deployment.now_ms // MINUTE_MS * MINUTE_MS

    async def feed(self) -> Feed:
        feed = await find_feed_by_id(self.database, self.organization.feed_id)
        assert feed is not None
        return feed

    async def flush(self, *noted: tuple[int | None, int]) -> None:
        """Note positions, each so many milliseconds after the beginning, in a process of its own, and write them."""
        positions = Positions()
        for position, after_ms in noted:
            positions.note(await self.feed(), READER, position, now_ms=self.began_ms + after_ms)
        await positions.flush(self.database)

    async def listed(self) -> list[tuple[int, int]]:
        """Return the positions of the list and when each was presented."""
        rows = await self.organization.rows("feed_positions", "client_id, minute")
        return [(row["position"], row["presented_ms"] - self.began_ms) for row in rows]

    async def follower(self) -> dict[str, Any]:
        (row,) = await self.organization.rows("feed_followers", "client_id")
        return row


@in_own_loop
async def test_positions_are_written_in_any_order_of_processes(database_url: str) -> None:
    """A list has a row where the position moved, at most one a minute, and says the earliest moment that is known."""
    async with migrated(database_url) as database:
        deployment = OptOutDeployment(database, FakeClock())
        flushes = [
            [(3, 59_000)],
            [(5, 59_900), (None, 59_950)],
            [(4, 61_000)],
            [(2, 500), (5, 61_500)],
            [(7, 130_000)],
        ]
        orders: Any = islice(permutations(flushes), 0, None, 11)
        for order in orders:
            organization = await deployment.new_organization()
            await organization.submit(*(out(f"p{number}@x.org") for number in range(10)))
            reading = Reading(organization)
            for noted in order:
                await reading.flush(*noted)
            assert await reading.listed() == [(5, 59_900), (7, 130_000)], order
            row = await reading.follower()
            assert (row["position"], row["current_ms"]) == (7, reading.began_ms + 130_000)
        await reading.flush((7, 500_000), (6, 600_000))
        assert await reading.listed() == [(5, 59_900), (7, 130_000)]
        assert (await reading.follower())["current_ms"] == reading.began_ms + 500_000


@in_own_loop
async def test_two_processes_write_a_reader_one_after_the_other(postgresql_url: str) -> None:
    """A higher position that is committed meanwhile stays."""
    async with migrated(postgresql_url) as database, another_process(postgresql_url) as other:
        organization = await OptOutDeployment(database, FakeClock()).new_organization()
        await organization.submit(*(out(f"p{number}@x.org") for number in range(10)))
        reading = Reading(organization)
        await reading.flush((1, 0))
        async with other.connection.transaction():
            await other.connection.execute("SELECT FROM feed_followers FOR SHARE")
            writing = asyncio.create_task(reading.flush((5, 70_000)))
            await other.wait_for_blocked(1)
            await other.connection.execute("UPDATE feed_followers SET position = 9")
        await writing
        assert (await reading.follower())["position"] == 9


@in_own_loop
async def test_another_generation_begins_at_0_and_keeps_the_list(database_url: str) -> None:
    """Evidence stays; a note from before the restore, or past the head of what was restored, counts for nothing."""
    async with migrated(database_url) as database:
        deployment = OptOutDeployment(database, FakeClock())
        organization = await deployment.new_organization()
        await organization.submit(*(out(f"p{number}@x.org") for number in range(10)))
        reading, late = Reading(organization), Positions()
        before = await reading.feed()
        await reading.flush((4, 0))
        late.note(before, READER, 9, now_ms=reading.began_ms + 1)
        await after_restore(ADMINISTRATOR, database, deployment.clock)
        await late.flush(database)
        row = await reading.follower()
        assert (row["position"], row["generation"] != before.generation) == (0, True)
        await reading.flush((3, 70_000))
        assert (await reading.follower())["position"] == 3
        await reading.flush((99, 80_000))
        assert (await reading.follower())["position"] == 3
        assert await reading.listed() == [(4, 0)]


@in_own_loop
async def test_a_feed_that_fails_is_kept_and_others_are_written(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next write takes it along with newer notes."""
    async with migrated(sqlite_url) as database:
        deployment = OptOutDeployment(database, FakeClock())
        organizations = [await deployment.new_organization() for _ in range(2)]
        positions = Positions()
        for organization in organizations:
            await organization.submit(out("a@x.org"), out("b@x.org"))
            feed = await Reading(organization).feed()
            positions.note(feed, READER, 1, now_ms=deployment.now_ms)
        write, calls = database.write, iter([True, False])

        async def failing(*values: Any, **options: Any) -> Any:
            if next(calls):
                raise StoreUnavailable("away")
            return await write(*values, **options)

        monkeypatch.setattr(database, "write", failing)
        with pytest.raises(StoreUnavailable):
            await positions.flush(database)
        monkeypatch.undo()
        assert await organizations[0].rows("feed_followers", "feed_id") == []
        assert len(await organizations[1].rows("feed_followers", "feed_id")) == 1
        first = await Reading(organizations[0]).feed()
        positions.note_read_ahead(first, READER, now_ms=deployment.now_ms + 5)
        await positions.flush(database)
        (row,) = await organizations[0].rows("feed_followers", "feed_id")
        assert (row["position"], row["asked_ms"]) == (1, deployment.now_ms + 5)
        before = await contents(database, "feed_followers", "feed_positions")
        await positions.flush(database)
        assert await contents(database, "feed_followers", "feed_positions") == before
