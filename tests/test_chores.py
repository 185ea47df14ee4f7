"""The background work of a server: its table, its intervals, and its failures."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from stoplist import log
from stoplist.chores import Chore, chores, delete_all_expired, running
from stoplist.db import Database, Transaction
from stoplist.errors import StoreUnavailable
from stoplist.limits.memory import MemoryLimiter
from stoplist.links.events import LinkEvents
from stoplist.lists.imports.model import LEASE_MS
from stoplist.oauth.tokens import EXPIRED_BATCH_ROWS
from stoplist.oauth.usage import Usage, use_by_day
from stoplist.proof.positions import Positions
from stoplist.rights.retention import Retention
from tests.builders import ADMINISTRATOR, make_key, make_organization, on_each_database, sql, value
from tests.constants import PATIENCE_S
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.staff.staff_fixture import StaffDeployment
from tests.test_log import configured

pytestmark = pytest.mark.interpreter

AT_ONCE_S = 0.0


class RunningChores(NamedTuple):
    """The chores of a server by name, and the objects that they work on."""

    table: dict[str, Chore]
    clock: FakeClock
    limiter: MemoryLimiter
    usage: Usage
    renewals: list[None]
    loaded: list[None]

    async def do(self, name: str) -> None:
        await self.table[name].work()


def background(database: Database) -> RunningChores:
    clock, usage, renewals, loaded = FakeClock(), Usage(), list[None](), list[None]()
    limiter = MemoryLimiter(clock)

    async def load_pages() -> None:
        loaded.append(None)

    table = chores(
        database=database,
        clock=clock,
        limiter=limiter,
        link_events=LinkEvents(),
        usage=usage,
        positions=Positions(),
        renew_certificate=lambda: renewals.append(None),
        load_pages=load_pages,
        work_on_imports=load_pages,
        delete_old_uploads=load_pages,
        deliver_notices=load_pages,
        delete_old_notices=load_pages,
        watch_store=load_pages,
        measure_propagation=load_pages,
        measure_installation=load_pages,
        notify_of_keys_behind=load_pages,
        retention=Retention(),
    )
    return RunningChores({chore.name: chore for chore in table}, clock, limiter, usage, renewals, loaded)


@on_each_database
async def test_the_table_has_every_chore_and_its_interval(database: Database) -> None:
    """The clock every 30 s (section D1, Clock); the usage of a key at most once a minute (section D9)."""
    assert {name: chore.every_s for name, chore in background(database).table.items()} == {
        "load a renewed certificate": 10,
        "load the pages": 3,
        "follow the database's clock": 30,
        "write key usage": 60,
        "write counts of links": 60,
        "write positions of readers": 60,
        "measure propagation": 60,
        "measure the installation": 10,
        "move entries from the outboxes of feeds": 5,
        "look for feeds of other organizations": 60,
        "tell of keys behind": 300,
        "delete old history": 3_600,
        "reconnect to the limit store": 1,
        "forget idle rate limits": 60,
        "delete expired tokens": 60,
        "complete the states of feeds": 60,
        "delete ended sessions": 60,
        "work on imports": 1,
        "delete old uploads": 600,
        "deliver notices": 5,
        "delete old notices": 60,
        "watch the database": 5,
    }


@on_each_database
async def test_work_of_a_dead_host_is_found_within_90_s(database: Database) -> None:
    """Its lease ends first (section D12, On the pages)."""
    assert LEASE_MS / 1_000 + background(database).table["work on imports"].every_s < 90


@on_each_database
async def test_each_chore_does_what_its_name_says(database: Database) -> None:
    server = background(database)
    await make_organization(database, server.clock)
    client_id = (await make_key(database, server.clock)).credential.client_id
    await server.do("load a renewed certificate")
    await server.do("load the pages")
    assert len(server.renewals) == len(server.loaded) == 1

    server.usage.note(client_id, now_ms=server.clock.now_ms(), is_authenticated=True, error=None, request_id="0" * 24)
    await server.do("write key usage")
    assert [day.requests for day in await use_by_day(ADMINISTRATOR, database, client_id, since_day=0)] == [1]

    await server.limiter.api(client_id, limit=60)
    await server.do("forget idle rate limits")
    assert server.limiter.log_count == 1
    server.clock.advance(60)
    await server.do("forget idle rate limits")
    assert server.limiter.log_count == 0

    await add_pairs(database, 1, expires_ms=server.clock.now_ms())
    await server.do("delete expired tokens")
    assert await pairs(database) == 0

    staff = StaffDeployment(database, server.clock)
    token = await staff.session((await staff.create("ann@example.org")).id)
    server.clock.advance(43_200)
    await server.do("delete ended sessions")
    assert not await staff.is_alive(token)
    assert await value(database, "SELECT COUNT(*) AS number FROM sessions") == 0


@on_each_database
async def test_all_expired_pairs_are_deleted_and_no_others(database: Database) -> None:
    """Any number of batches does it; a pair that expires in a millisecond stays."""
    clock = FakeClock()
    await add_pairs(database, 2 * EXPIRED_BATCH_ROWS + 1, expires_ms=clock.now_ms())
    await add_pairs(database, 3, expires_ms=clock.now_ms() + 1)
    await delete_all_expired(database, clock)
    assert await pairs(database) == 3
    clock.advance(0.001)
    await delete_all_expired(database, clock)
    assert await pairs(database) == 0


async def add_pairs(database: Database, count: int, *, expires_ms: int) -> None:
    """Add so many token pairs that expire at this moment, in one unit of work."""
    added = await pairs(database)
    insert = sql("""
        INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
        VALUES ('x', 1, :access_hash, :refresh_hash, :access_ms, :refresh_ms)
    """)

    async def unit(transaction: Transaction) -> None:
        for number in range(added, added + count):
            it = number.to_bytes(32)
            await transaction.run(insert, access_hash=it, refresh_hash=it, access_ms=expires_ms, refresh_ms=expires_ms)

    await database.write(unit)


async def pairs(database: Database) -> int:
    return int(await value(database, "SELECT COUNT(*) AS number FROM token_pairs"))


# Running the chores


@pytest.fixture
def logged() -> Iterator[io.BytesIO]:
    """Capture the log, as JSON."""
    stream = io.BytesIO()
    with configured("json", stream):
        yield stream


def events(stream: io.BytesIO) -> list[dict[str, Any]]:
    log.flush()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def counting(times: int, failure: Exception | None = None) -> tuple[Callable[[], Awaitable[None]], asyncio.Event]:
    """Return work that raises `failure` each time, and an event that is set once it has run so many times."""
    done, left = asyncio.Event(), iter(range(times - 1))

    async def work() -> None:
        if next(left, None) is None:
            done.set()
        if failure is not None:
            raise failure

    return work, done


@in_own_loop
async def test_chores_repeat_until_the_end() -> None:
    """Each by itself; none is left afterwards."""
    (first, first_done), (second, second_done) = counting(3), counting(2)
    with running([Chore("first", AT_ONCE_S, first), Chore("second", AT_ONCE_S, second)]):
        await asyncio.wait_for(asyncio.gather(first_done.wait(), second_done.wait()), PATIENCE_S)
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert {"first", "second"} <= names
    ended = [task for task in asyncio.all_tasks() if task.get_name() in ("first", "second")]
    assert not (await asyncio.wait(ended, timeout=PATIENCE_S))[1]


@in_own_loop
async def test_a_chore_first_runs_after_its_interval() -> None:
    """So that the start is not delayed."""
    work, done = counting(1)
    other, other_done = counting(5)
    with running([Chore("rare", 3600, work), Chore("often", AT_ONCE_S, other)]):
        await asyncio.wait_for(other_done.wait(), PATIENCE_S)
    assert not done.is_set()


def test_an_unavailable_store_is_logged_and_retried(logged: io.BytesIO) -> None:
    """The log has a warning with the name of the chore and the reason."""

    async def main() -> None:
        work, done = counting(2, StoreUnavailable("The database rests."))
        with running([Chore("a chore", AT_ONCE_S, work)]):
            await asyncio.wait_for(done.wait(), PATIENCE_S)

    asyncio.run(main())
    event = events(logged)[0]
    assert (event["level"], event["chore"], event["why"]) == ("warning", "a chore", "The database rests.")


def test_a_defect_ends_no_chore(logged: io.BytesIO) -> None:
    """It is logged as an error, without the text of the exception, and counted."""
    defects = list[None]()

    async def main() -> None:
        (broken, broken_done), (sound, sound_done) = counting(3, RuntimeError("svc_at_secret")), counting(3)
        table = [Chore("broken", AT_ONCE_S, broken), Chore("sound", AT_ONCE_S, sound)]
        with running(table, on_defect=lambda: defects.append(None)):
            await asyncio.gather(broken_done.wait(), sound_done.wait())

    asyncio.run(main())
    event = events(logged)[0]
    assert (event["level"], event["chore"]) == ("error", "broken")
    assert len(defects) >= 3
    assert "RuntimeError" in json.dumps(event)
    assert "svc_at_secret" not in logged.getvalue().decode()
