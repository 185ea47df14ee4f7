"""Requests that are held until their feed changes (docs/interface.md section D14, Waiting for news)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stoplist.db import Database
from stoplist.db.query import Query
from stoplist.errors import StoreUnavailable
from stoplist.proof.held_requests import MAX_HELD_PER_KEY, HeldRequest, HeldRequests
from tests.builders import Pooled, Run, opened
from tests.deployment import in_own_loop
from tests.unsubscribes.partner import Organization, opt_out_deployment, out

NEVER_S, SOON_S, LONG_S = 3600.0, 0.01, 60.0


@asynccontextmanager
async def organization_on(url: str) -> AsyncIterator[Organization]:
    """Yield an organization with one opt-out on this database."""
    async with opt_out_deployment(url) as deployment:
        organization = await deployment.new_organization()
        await organization.submit(out("ann@x.org"))
        yield organization


def holding(held: HeldRequests, client_id: str = "svc_ci_a", wait_s: float = LONG_S) -> HeldRequest:
    """Return a request that may be held."""
    request = held.hold(client_id, wait_s)
    assert request is not None
    return request


async def waiting(database: Database, *, look_every_s: float = NEVER_S) -> tuple[HeldRequests, "asyncio.Future[bool]"]:
    """Return the future of one request that waits for feed 1 after number 0."""
    held = HeldRequests(database, look_every_s=look_every_s)
    return held, holding(held).__enter__().until_changed(1, after=0)


class CountingDatabase:
    """Answers every question for heads with these, and counts the questions."""

    def __init__(self, heads: dict[int, int] | StoreUnavailable) -> None:
        self.heads, self.questions = heads, 0
        self.on_feed_written: Callable[[int], None] = lambda feed_id: None
        self.was_asked = asyncio.Event()

    async def one(self, query: Query, **values: Any) -> Any:
        self.questions += 1
        self.was_asked.set()
        if isinstance(self.heads, StoreUnavailable):
            raise self.heads
        return {"heads": str([list(head) for head in self.heads.items()])}


def counting(heads: dict[int, int] | StoreUnavailable) -> Any:
    """Return a CountingDatabase; it has nothing of a database that is not asked for here."""
    return CountingDatabase(heads)


@in_own_loop
async def test_a_change_by_this_process_is_noticed_when_it_is_committed(database_url: str) -> None:
    async with organization_on(database_url) as organization:
        held = HeldRequests(organization.deployment.database, look_every_s=NEVER_S)
        with holding(held) as request:
            change = request.until_changed(organization.feed_id, after=1)
            await organization.submit(out("ann@x.org"))  # unchanged
            await organization.submit(out("ben@x.org"))
            assert await change


@in_own_loop
async def test_a_change_between_reading_and_waiting_is_not_overlooked(database_url: str) -> None:
    """The request has read head 1 when the change is committed, and only then begins to wait."""
    async with organization_on(database_url) as organization:
        held = HeldRequests(organization.deployment.database, look_every_s=NEVER_S)
        with holding(held) as request:
            await organization.submit(out("ben@x.org"))
            assert await request.until_changed(organization.feed_id, after=1)
            await organization.submit(out("cec@x.org"))  # the request reads again
            assert await request.until_changed(organization.feed_id, after=2)


async def change_elsewhere(url: str) -> None:
    async with organization_on(url) as organization, opened(url) as other:
        held = HeldRequests(other, look_every_s=SOON_S)
        with holding(held) as request:
            change = request.until_changed(organization.feed_id, after=1)
            await organization.submit(out("ben@x.org"))
            assert await change


def test_a_change_by_another_process_is_noticed(database_url: str, run: Run) -> None:
    run(change_elsewhere(database_url))


@in_own_loop
async def test_a_change_is_noticed_behind_a_pooler(pooled_url: Pooled) -> None:
    """It is in transaction mode, in which LISTEN would hear nothing."""
    async with opened(pooled_url) as other, opt_out_deployment(pooled_url) as deployment:
        organization = await deployment.new_organization()
        await organization.submit(out("ann@x.org"))
        with holding(HeldRequests(other, look_every_s=SOON_S)) as request:
            assert await request.until_changed(organization.feed_id, after=0)


@in_own_loop
async def test_one_statement_asks_for_all_feeds_and_none_where_nobody_waits() -> None:
    """A thousand feeds are asked for together, and the process stops asking when the last one has left."""
    database = counting(dict.fromkeys(range(1000), 0))
    held = HeldRequests(database, look_every_s=SOON_S)
    requests = [holding(held, f"svc_ci_{feed_id}").__enter__() for feed_id in range(1000)]
    changes = [request.until_changed(feed_id, after=0) for feed_id, request in enumerate(requests)]
    await database.was_asked.wait()
    assert database.questions == 1
    for request in requests:
        request.__exit__(None, None, None)
    looking = held._looking
    assert looking is not None
    await looking
    asked = database.questions
    assert not any([await change for change in changes])
    assert (held.count, held._looking, asked) == (0, None, database.questions)


@in_own_loop
async def test_only_the_readers_of_the_changed_feed_are_answered() -> None:
    database = counting({7: 1})
    held = HeldRequests(database, look_every_s=NEVER_S)
    requests = [holding(held, f"svc_ci_{number}").__enter__() for number in range(2000)]
    changes = [request.until_changed(number % 20, after=0) for number, request in enumerate(requests)]
    database.on_feed_written(7)
    assert all(await asyncio.gather(*changes[7::20]))
    assert sum(change.done() for change in changes) == 100
    held.end()


@in_own_loop
async def test_writes_at_the_same_time_share_one_look() -> None:
    database = counting({1: 1})
    _, change = await waiting(database)
    for _ in range(100):
        database.on_feed_written(1)
    assert await change
    assert database.questions == 1


@in_own_loop
async def test_a_request_is_answered_when_its_time_is_over() -> None:
    held = HeldRequests(counting({}), look_every_s=NEVER_S)
    with holding(held, wait_s=SOON_S) as request:
        assert not await request.until_changed(1, after=0)
        assert not await request.until_changed(1, after=0)


@in_own_loop
async def test_a_key_and_a_process_hold_so_many_and_no_more() -> None:
    """A place is free again as soon as its request has ended."""
    held = HeldRequests(counting({}), max_held=MAX_HELD_PER_KEY + 2)
    first, *_ = [holding(held, "svc_ci_a").__enter__() for _ in range(MAX_HELD_PER_KEY)]
    assert held.hold("svc_ci_a", LONG_S) is None
    others = [holding(held, "svc_ci_b").__enter__() for _ in range(2)]
    assert held.hold("svc_ci_c", LONG_S) is None
    others[0].__exit__(None, None, None)
    assert held.hold("svc_ci_a", LONG_S) is None
    first.__exit__(None, None, None)
    assert held.hold("svc_ci_a", LONG_S) is not None


@in_own_loop
async def test_a_stop_answers_all_and_holds_no_more() -> None:
    held, change = await waiting(counting({1: 0}))
    between = holding(held).__enter__()
    stop = asyncio.Event()
    ending = asyncio.create_task(held.end_at(stop))
    stop.set()
    await ending
    assert await change is False
    assert await between.until_changed(1, after=0) is False
    assert held.hold("svc_ci_a", LONG_S) is None


@in_own_loop
async def test_a_lost_database_answers_all() -> None:
    _, change = await waiting(counting(StoreUnavailable("The database is away.")), look_every_s=SOON_S)
    with pytest.raises(StoreUnavailable, match="away"):
        await change


@in_own_loop
async def test_a_failure_of_the_look_itself_answers_all() -> None:
    """No reader waits for a check that cannot be made."""
    database = counting({})
    database.heads = None
    held, change = await waiting(database, look_every_s=SOON_S)
    looking = held._looking
    assert looking is not None
    assert await change is False
    with pytest.raises(AttributeError):
        await looking
