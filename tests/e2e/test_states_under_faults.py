"""States, mirrors and waiting readers of two servers with two workers each, while their parts are killed and restarted.

Every state that anybody is given is compared with the records that they have at that moment, as `Follower` does it.
Source: docs/interface.md section D14.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from stoplist_client import AsyncClient, Client, MemoryStore, Mirror, StoplistClientError

from stoplist.clock import Clock
from stoplist.errors import StoreUnavailable
from stoplist.proof.feed_states import compare_states
from stoplist.records.reversal import reverse
from stoplist.rights.erasure import erase_person
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import OptOutStores
from stoplist.web.api import prefer
from tests.builders import ADMINISTRATOR, opened
from tests.constants import HIGH_LIMIT, PATIENCE_S
from tests.e2e import load
from tests.e2e.conftest import SECRET_KEY, own_limits_url
from tests.e2e.partner_programs import (
    BACK_OFF_S,
    Partners,
    by_worker,
    connections_to_each_worker,
    wait_until,
)
from tests.e2e.partners import Follower, new_token
from tests.e2e.server_process import RunningServer
from tests.e2e.under_load import FEW, TURNS, WORKERS, DeploymentUnderLoad, deployed, own_cluster
from tests.keys import EVERY_PERMISSION, Key
from tests.server.serving import RawConnection, WireAnswer
from tests.services import postgresql as services
from tests.services.valkey import Valkey
from tests.time_limits import LONG_METRICS, setting_constants

pytestmark = pytest.mark.slow

ORGANIZATION = "acme"
# If nothing happens, a request is held for longer than a busy machine takes until all are held, and their answers come.
HELD_S = 99
REVERSED_AT_ONCE = 20


class TwoServers(NamedTuple):
    """Two servers of two workers each on one database and one limit store."""

    one: DeploymentUnderLoad
    other: DeploymentUnderLoad
    cluster: services.Cluster
    start: Callable[[], contextlib.AbstractContextManager[DeploymentUnderLoad]]
    """Starts a third server."""

    def new_key(self, per_minute: int = HIGH_LIMIT) -> Key:
        return self.one.direct.new_key(per_minute=per_minute, may=EVERY_PERMISSION, organization=ORGANIZATION)


@pytest.fixture(scope="module")
def two_servers(
    tmp_path_factory: pytest.TempPathFactory, valkey: Valkey, pytestconfig: pytest.Config
) -> Iterator[TwoServers]:
    with contextlib.ExitStack() as running:
        cluster = running.enter_context(own_cluster(pytestconfig))
        url, limits_url = cluster.fresh_database(), own_limits_url(valkey)
        folder = tmp_path_factory.mktemp("servers")
        first = setting_constants({(prefer, "MAX_WAIT_S"): HELD_S} | LONG_METRICS)
        start = functools.partial(deployed, folder, url, url, limits_url, first=first, DRAIN_S="4")
        yield TwoServers(running.enter_context(start()), running.enter_context(start()), cluster, start)


class Waiter:
    """Follows a feed by requests that are held, and connects anew when a worker is killed."""

    def __init__(self, server: RunningServer, key: Key) -> None:
        self._server, self._key, self.follower = server, key, Follower("email", 10_000)
        self.statuses: Counter[int] = Counter()
        self._line: RawConnection | None = None
        self.connections = 0

    def kill_worker(self) -> None:
        """Kill the worker that serves the connection."""
        assert self._line is not None
        (pid,) = by_worker(self._server, [self._line])
        os.kill(pid, signal.SIGKILL)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Wait for one change after another until it is over."""
        while not is_over():
            with contextlib.suppress(*load.BROKEN):
                async with load.connection(self._server) as line:
                    self._line, self.connections = line, self.connections + 1
                    await self._wait_repeatedly(line, is_over)
            await asyncio.sleep(BACK_OFF_S)

    async def _wait_repeatedly(self, line: RawConnection, is_over: Callable[[], bool]) -> None:
        token: str | None = None
        while not is_over():
            request = load.issue(self._key) if token is None else self.follower.request(token, wait_s=2)
            answer = await load.send_once(line, request)
            self.statuses[answer.status] += 1
            if answer.status != 200:
                assert answer.status == 503, answer
                await asyncio.sleep(BACK_OFF_S)
            elif token is None:
                token = answer.json()["access_token"]
            else:
                self.follower.take(answer.json())


class MirrorThread(threading.Thread):
    """Keeps a mirror up to date by `sync(wait=…)`, and notes what should not happen."""

    def __init__(self, path: Path, access: dict[str, Any]) -> None:
        super().__init__(name="mirror")
        self._path, self._access = path, access
        self.is_over = threading.Event()
        self.syncs = 0
        self.unexpected: list[object] = []

    def run(self) -> None:
        try:
            with Client(**self._access) as client, Mirror(self._path, client, page_records=500) as mirror:
                mirror.follow("email")
                while not self.is_over.is_set():
                    self.is_over.wait(min(self._sync(mirror), 0.2))
        except BaseException as error:
            self.unexpected.append(error)

    def _sync(self, mirror: Mirror) -> float:
        try:
            synced = mirror.sync(wait=2)
        except StoplistClientError as error:
            if getattr(error, "status", 503) != 503:
                self.unexpected.append(error)
            return BACK_OFF_S
        self.syncs += bool(synced.records)
        self.unexpected += [feed for feed in synced.feeds if feed.was_diverged or feed.was_rebuilt]
        return synced.pause_s


class Reverser:
    """Submits opt-outs of new people, erases one of them, and takes all back, in a process of its own."""

    def __init__(self, deployment: DeploymentUnderLoad, access: dict[str, Any]) -> None:
        self._deployment, self._access = deployment, access
        self.reversals = self.erasures = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Reverse one submission after another until it is over."""
        async with (
            opened(self._deployment.direct.database_url, pool_size=2) as database,
            AsyncClient(**self._access, attempts=100) as client,
        ):
            stores = OptOutStores(database=database, clock=Clock(), secret_keys=(SECRET_KEY,))
            for number in itertools.count():
                if is_over():
                    return
                people = [f"reversed-{number}-{person}@example.org" for person in range(REVERSED_AT_ONCE)]
                submissions = (await client.unsubscribe("email", people, all_groups=True)).submission_ids
                await self._erase(stores, people[0])
                for submission_id in submissions:
                    await self._reverse(stores, submission_id)

    async def _erase(self, stores: OptOutStores, address: str) -> None:
        while True:
            try:
                await erase_person(
                    ADMINISTRATOR, stores, CHANNELS["email"], address, org_slug=ORGANIZATION, is_all_upgraded=True
                )
            except StoreUnavailable:  # the erasure may be stored all the same, and may be repeated
                await asyncio.sleep(BACK_OFF_S)
                continue
            self.erasures += 1
            return

    async def _reverse(self, stores: OptOutStores, submission_id: str) -> None:
        while True:
            try:
                reversal = await reverse(ADMINISTRATOR, stores, submission_id)
            except StoreUnavailable:  # the reversal may be stored all the same, and may be repeated
                await asyncio.sleep(BACK_OFF_S)
                continue
            assert reversal.corrected + reversal.taken_back == REVERSED_AT_ONCE
            self.reversals += 1
            return


def test_every_state_holds_while_processes_end(two_servers: TwoServers, tmp_path: Path) -> None:
    """A worker is killed, PostgreSQL restarted and crashed, while all kinds of programs read and write one feed.

    In the end every follower and the mirror have what the service has, and a full recomputation agrees.
    """
    one, other = two_servers.one, two_servers.other
    key = two_servers.new_key()
    access: dict[str, Any] = {
        "base_url": other.server.base_url,
        "ca_file": str(other.server.ca),
        "client_id": key.client_id,
        "client_secret": key.client_secret,
        "org_slug": ORGANIZATION,
        "store": MemoryStore(),
    }
    mirror = MirrorThread(tmp_path / "mirror.db", access)
    waiters = [Waiter(deployment.server, key) for deployment in (one, other) for _ in range(2)]
    reverser = Reverser(other, access)
    partners = Partners(one.server, workers=WORKERS, key=key, hasty=two_servers.new_key(FEW))

    def progress() -> dict[str, int]:
        by_waiter = {f"waiter {number}": waiter.follower.states for number, waiter in enumerate(waiters)}
        return {"mirror": mirror.syncs, "reversals": reverser.reversals, "erasures": reverser.erasures, **by_waiter}

    async def news() -> None:
        """Wait until every program has read or stored something more."""
        goals = {name: count + TURNS for name, count in progress().items()}
        await partners.wait_for_successes(TURNS)
        await wait_until(
            lambda: bool(mirror.unexpected) or all(count >= goals[name] for name, count in progress().items()),
            lambda: str(progress()),
        )

    async def body() -> None:
        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            async with partners.run_programs():
                for run in (reverser.run, *(waiter.run for waiter in waiters)):
                    group.create_task(run(is_over.is_set))
                await news()
                waiters[-1].kill_worker()
                await news()
                await asyncio.to_thread(two_servers.cluster.stop)
                await wait_until(
                    lambda: all(waiter.statuses[503] for waiter in waiters),
                    lambda: str([waiter.statuses for waiter in waiters]),
                )
                await asyncio.to_thread(two_servers.cluster.start)
                await news()
                await asyncio.to_thread(two_servers.cluster.kill)
                await asyncio.to_thread(two_servers.cluster.start)
                await news()
            is_over.set()
        await asyncio.to_thread(_end, mirror)
        await _assert_all_have_the_same(two_servers, key, [partners.follower, *(one.follower for one in waiters)])

    mirror.start()
    try:
        asyncio.run(body())
    finally:
        _end(mirror)
    assert mirror.unexpected == []
    assert waiters[-1].connections > 1, "a worker was killed"
    with Client(**access) as client, Mirror(tmp_path / "mirror.db", client) as copy:
        copy.sync()
        (verified,) = copy.verify()
        copied = {"seq": copy.position("email"), "records": verified.records, "digest": verified.digest}
        assert copied == waiters[0].follower.state


def _end(mirror: MirrorThread) -> None:
    mirror.is_over.set()
    mirror.join()


async def _assert_all_have_the_same(two_servers: TwoServers, key: Key, followers: list[Follower]) -> None:
    """Assert that all followers reach the state of the service, and that it is that of the records."""
    async with load.connection(two_servers.other.server) as line:
        token = await new_token(line, load.issue(key))
        for follower in followers:
            await follower.read_all(line, token)
            assert follower.state == followers[0].state
            assert follower.states > 0
    async with opened(two_servers.one.direct.database_url, pool_size=2) as database:
        compared = await compare_states(database)
    assert (compared.differing, compared.open) == ([], 0)
    assert compared.compared


# Held requests when a server stops, or the database is lost


async def _hold_at_each_worker(
    held: contextlib.AsyncExitStack, deployment: DeploymentUnderLoad, key: Key
) -> list[RawConnection]:
    """Let every worker of a server hold a request, and return their connections."""
    opened_lines = await connections_to_each_worker(held, deployment.server, WORKERS)
    lines = list(by_worker(deployment.server, opened_lines).values())
    token = await new_token(lines[0], load.issue(key))
    page = (await load.send_once(lines[0], load.follow(token, "sms", limit=1, cursor=None))).json()
    for line in lines:
        await line.send(load.wait_for_change(token, "sms", page["next_cursor"], wait_s=HELD_S))
    await _wait_until_held(deployment, len(lines))
    return lines


async def _wait_until_held(deployment: DeploymentUnderLoad, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(deployment.metric, "held_requests") != count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _answers(lines: list[RawConnection]) -> list[WireAnswer]:
    async with asyncio.timeout(PATIENCE_S):
        return [await line.answer() for line in lines]


def test_a_stop_of_one_server_answers_what_its_workers_hold(two_servers: TwoServers) -> None:
    """The answers come without records and without delay, as in a rolling restart; the other server goes on holding.

    A change there is then the answer to all that wait at its workers.
    """
    key = two_servers.new_key()

    async def body(stopping: DeploymentUnderLoad, staying: DeploymentUnderLoad) -> None:
        async with contextlib.AsyncExitStack() as held:
            left, stayed = [await _hold_at_each_worker(held, one, key) for one in (stopping, staying)]
            stopping.server.process.send_signal(signal.SIGTERM)
            for answer in await _answers(left):
                assert (answer.status, answer.json()["items"]) == (200, [])
                assert "preference-applied" not in answer.headers
            await _wait_until_held(staying, len(stayed))
            async with load.connection(staying.server) as line:
                token = await new_token(line, load.issue(key))
                people = [{"address": "+12125550123", "status": "unsubscribed"}]
                assert (await load.send_once(line, load.submit(token, "sms", people))).status == 200
            for answer in await _answers(stayed):
                assert [record["address"] for record in answer.json()["items"]] == ["+12125550123"]
        assert await asyncio.to_thread(stopping.server.wait_for_exit) == 0

    with two_servers.start() as another:
        asyncio.run(body(another, two_servers.other))


def test_a_lost_database_answers_all_that_wait(two_servers: TwoServers) -> None:
    """They get 503 and Retry-After, at every worker of both servers."""
    key = two_servers.new_key()

    async def body() -> None:
        async with contextlib.AsyncExitStack() as held:
            servers = (two_servers.one, two_servers.other)
            lines = [line for one in servers for line in await _hold_at_each_worker(held, one, key)]
            await asyncio.to_thread(two_servers.cluster.kill)
            for answer in await _answers(lines):
                assert answer.status == 503
                assert int(answer.headers["retry-after"]) > 0
            await asyncio.to_thread(two_servers.cluster.start)
            for line in lines:  # the first requests of a worker may find connections that are broken
                while (await load.send_once(line, load.issue(key))).status == 503:
                    pass

    asyncio.run(body())
