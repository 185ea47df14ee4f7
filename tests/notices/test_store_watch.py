"""A database that fails for a minute is told from memory (docs/interface.md section D16)."""

from typing import Any

import msgspec
import pytest

from stoplist.errors import StoreUnavailable
from stoplist.notices.outcome import DELIVERED, DeliveryOutcome
from stoplist.notices.store_watch import MAX_ATTEMPTS, StoreWatch
from tests.deployment import in_loop
from tests.notices.operator import NoticeDeployment


class UnreliableDatabase:
    """The deployment's database, whose reads or writes can be made to fail."""

    def __init__(self, deployment: NoticeDeployment) -> None:
        self._database = deployment.database
        self.fails_reads = self.fails_writes = False
        self.writes = 0

    async def one(self, *query: Any, **values: Any) -> Any:
        if self.fails_reads:
            raise StoreUnavailable("away")
        return await self._database.one(*query, **values)

    async def write_one(self, *query: Any, **values: Any) -> Any:
        self.writes += 1
        if self.fails_writes:
            raise StoreUnavailable("full")
        return await self._database.write_one(*query, **values)


class Outage:
    """A process that watches its database, and what it told."""

    def __init__(self, deployment: NoticeDeployment) -> None:
        self.deployment, self.database = deployment, UnreliableDatabase(deployment)
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.outcome, self.failed_requests = DELIVERED, 0
        self.watch = StoreWatch(
            self.database,  # type: ignore[arg-type]
            deployment.clock,
            self,
            failures=lambda: self.failed_requests,
        )

    async def post(self, notice_id: str, body: str, *, now_ms: int) -> DeliveryOutcome:
        self.told.append((notice_id, msgspec.json.decode(body)))
        return self.outcome

    async def last(self, seconds: int) -> None:
        """Let time pass, and look every five seconds."""
        for _ in range(seconds // 5):
            await self.watch.look()
            self.deployment.clock.advance(5)


@pytest.fixture
def outage(deployment: NoticeDeployment) -> Outage:
    return Outage(deployment)


@in_loop
async def test_a_database_that_is_away_for_a_minute_is_told_once(deployment: NoticeDeployment, outage: Outage) -> None:
    """Another failure later is told once more; a return within the minute is not told."""
    outage.database.fails_reads = True
    await outage.last(60)
    outage.database.fails_reads = False
    await outage.last(60)
    assert outage.told == []
    outage.database.fails_reads = True
    await outage.last(600)
    ((_, body),) = outage.told
    assert body["type"] == "store.unavailable"
    assert body["data"] == {"since": "2047-01-15T08:02:00.000Z"}
    outage.database.fails_reads = False
    await outage.last(5)
    outage.database.fails_reads = True
    await outage.last(600)
    assert len({notice_id for notice_id, _ in outage.told}) == 2


@in_loop
async def test_a_full_disk_is_told_too(deployment: NoticeDeployment, outage: Outage) -> None:
    """It can be read, so that only requests that fail show it."""
    outage.database.fails_writes = True
    await outage.last(120)
    assert outage.told == []
    outage.failed_requests += 1
    await outage.last(120)
    assert len(outage.told) == 1


@in_loop
async def test_nothing_is_written_while_all_is_well(deployment: NoticeDeployment, outage: Outage) -> None:
    """One request that failed costs one small write."""
    await outage.last(120)
    assert outage.database.writes == 0
    outage.failed_requests += 1
    await outage.last(120)
    assert (outage.database.writes, outage.told) == (1, [])


@in_loop
async def test_a_receiver_that_fails_too_is_tried_a_few_times(deployment: NoticeDeployment, outage: Outage) -> None:
    """Each attempt has the same id."""
    outage.outcome = DeliveryOutcome("HTTP 500")
    outage.database.fails_reads = True
    await outage.last(600)
    assert len(outage.told) == MAX_ATTEMPTS
    assert len({notice_id for notice_id, _ in outage.told}) == 1
