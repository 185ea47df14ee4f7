"""Both databases are looked at by `/readyz`, by the metrics and by the notice of a database that fails.

Source: docs/interface.md sections D10 and D16.
"""

from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from stoplist.db.split import SplitDatabase
from stoplist.errors import StoreUnavailable
from stoplist.notices.outcome import DELIVERED, DeliveryOutcome
from stoplist.notices.store_watch import StoreWatch
from stoplist.web.health import require_answer
from tests.builders import execute, value
from tests.deployment import in_loop
from tests.unsubscribes.partner import OptOutDeployment
from tests.web.application import Application

BOTH = pytest.mark.parametrize("part", ["accounts", "feeds"])
AWAY = AsyncMock(side_effect=StoreUnavailable("The database is away."))


@BOTH
def test_a_server_without_one_of_them_is_alive_and_not_ready(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Another server may reach what this one does not. A restart would not help."""
    app = Application(deployment.run, deployment.database, deployment.clock)
    monkeypatch.setattr(getattr(deployment.database, part), "one", AWAY)
    answer = app.request("GET", "/readyz")
    assert (answer.status, answer.error) == (503, "temporarily_unavailable")
    assert app.request("GET", "/healthz").status == 200
    monkeypatch.undo()
    assert app.request("GET", "/readyz").status == 200


@BOTH
@in_loop
async def test_an_empty_one_is_no_answer(deployment: OptOutDeployment, part: str) -> None:
    """So the metrics show the database as lost, too."""
    database = getattr(deployment.database, part)
    await require_answer(deployment.database)
    await execute(database, "ALTER TABLE deployment RENAME TO away")
    with pytest.raises(StoreUnavailable, match="empty"):
        await require_answer(deployment.database)
    await execute(database, "ALTER TABLE away RENAME TO deployment")


class WatchedPair:
    """A process that watches both databases, and what it told."""

    def __init__(self, deployment: OptOutDeployment) -> None:
        self.clock, self.told, self.failed_requests = deployment.clock, 0, 0
        self.watch = StoreWatch(deployment.database, self.clock, self, failures=lambda: self.failed_requests)

    async def post(self, notice_id: str, body: str, *, now_ms: int) -> DeliveryOutcome:
        self.told += 1
        return DELIVERED

    async def last(self, seconds: int) -> None:
        """Let time pass, and look every five seconds."""
        for _ in range(seconds // 5):
            await self.watch.look()
            self.clock.advance(5)


@BOTH
@in_loop
async def test_one_that_cannot_be_read_is_told(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    watched = WatchedPair(deployment)
    await watched.last(120)
    assert watched.told == 0
    monkeypatch.setattr(getattr(deployment.database, part), "one", AWAY)
    await watched.last(120)
    assert watched.told == 1


@pytest.mark.parametrize(("part", "method"), [("accounts", "write_one"), ("feeds", "write")])
@in_loop
async def test_one_that_cannot_be_written_is_told(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, part: str, method: str
) -> None:
    """Only requests that fail show a full disk."""
    watched = WatchedPair(deployment)
    monkeypatch.setattr(getattr(deployment.database, part), method, AWAY)
    await watched.last(120)
    assert watched.told == 0
    watched.failed_requests += 1
    await watched.last(120)
    assert watched.told == 1


@in_loop
async def test_a_write_to_the_feeds_is_durable_and_leaves_nothing(deployment: OptOutDeployment) -> None:
    """A failed request is followed by one write to each database."""
    watched, database = WatchedPair(deployment), cast(SplitDatabase, deployment.database)
    before: Any = [database.accounts.counts.commits, database.feeds.counts.commits]
    watched.failed_requests += 1
    await watched.last(120)
    assert [database.accounts.counts.commits, database.feeds.counts.commits] == [one + 1 for one in before]
    assert await value(database, "SELECT COUNT(*) FROM feed_outbox") == 0
    assert watched.told == 0
