"""Stores that crash, freeze, are cut off, slow, full or replaced, under a server of two workers and under load.

Afterwards everything answered 200 is stored, no batch and no rotation is incomplete, no reuse alarm was raised, no
limit was exceeded, and the service has recovered by itself. Source: docs/interface.md sections D1, D2, D4, D6 and D8.
"""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

import asyncpg
import psutil
import pytest

from stoplist.db.pools import ACQUIRE_TIMEOUT_S
from stoplist.web import concurrency_limit
from tests.conftest import needed
from tests.constants import PATIENCE_S
from tests.db import hosts
from tests.deployment import in_own_loop
from tests.e2e import load
from tests.e2e.conftest import own_limits_url
from tests.e2e.faults import (
    Fault,
    OwnStoresDeployment,
    ProxiedDeployment,
    ProxiedFault,
    assert_counting_alone,
    crash_limit_store,
    crash_postgresql,
    cut_limit_store_off,
    cut_postgresql_off,
    delay_postgresql,
    fill_disk,
    frozen,
    lose_answers_to_commits,
    lose_answers_to_rotations,
    lose_answers_to_rotations_twice,
    own_valkey,
    proxied_deployment,
    refuse_logins,
    refuse_writes,
    restart_postgresql,
    slow_limit_store,
    time_statements_out,
    wait_for_counting_alone,
)
from tests.e2e.partner_programs import Partners
from tests.e2e.server_process import RunningServer
from tests.e2e.under_load import TURNS, WORKERS, DeploymentUnderLoad, deployed, own_cluster, under_load
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services
from tests.services.proxy import Proxy
from tests.services.valkey import Valkey
from tests.time_limits import LONG_DATABASE, LONG_READS, setting_constants

pytestmark = pytest.mark.slow

FROZEN_S = 20.0
# Each of its programs still sends forty requests meanwhile.
PACE_WHILE_FROZEN_S = 0.5
# To connect thousands takes a busy machine longer than the server waits for a request: hundreds are as many if few may
# be authenticated at once.
CALLERS, AUTHENTICATED_AT_ONCE = 500, 50
MAX_GROWTH_BYTES = 25 << 20
# By default PgBouncer waits 15 s before it retries a PostgreSQL that it could not reach.
_FAST_RETRY = {"server_login_retry": "1"}


class PooledDeployment(NamedTuple):
    """A deployment behind PgBouncer; pooler and PostgreSQL belong to the test."""

    deployment: DeploymentUnderLoad
    cluster: services.Cluster
    pooler: poolers.PgBouncer


@pytest.fixture(scope="module")
def all_proxied(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[OwnStoresDeployment]:
    """Run one deployment for all tests."""
    folder = tmp_path_factory.mktemp("proxied")
    first = setting_constants({(concurrency_limit, "MAX_CONCURRENT_PER_SOURCE"): AUTHENTICATED_AT_ONCE})
    with proxied_deployment(folder, pytestconfig, first=first) as deployment:
        yield deployment


@pytest.fixture
def proxied(all_proxied: OwnStoresDeployment) -> Iterator[OwnStoresDeployment]:
    """Yield the deployment, and repair what a test breaks, even if it fails."""
    yield all_proxied
    all_proxied.repair()


@pytest.fixture(scope="module")
def all_patient(
    tmp_path_factory: pytest.TempPathFactory, postgresql: services.PostgresqlServer, pytestconfig: pytest.Config
) -> Iterator[ProxiedDeployment]:
    """Run one deployment for all tests, which waits long for PostgreSQL, for faults in which no request may fail."""
    with contextlib.ExitStack() as running:
        valkey = running.enter_context(own_valkey(pytestconfig))
        url = postgresql.fresh_database("patient")
        running.callback(postgresql.drop_database, url)
        to_database, to_limits = running.enter_context(Proxy(url)), running.enter_context(Proxy(valkey.url))
        urls = url, to_database.url(url), to_limits.url(valkey.url)
        deployment = running.enter_context(
            deployed(tmp_path_factory.mktemp("patient"), *urls, first=setting_constants(LONG_DATABASE | LONG_READS))
        )
        yield ProxiedDeployment(deployment, to_database, to_limits, valkey)


@pytest.fixture
def patient(all_patient: ProxiedDeployment) -> Iterator[ProxiedDeployment]:
    """Yield the deployment, and repair what a test breaks, even if it fails."""
    yield all_patient
    all_patient.repair()


@pytest.fixture(scope="module")
def pooled(
    tmp_path_factory: pytest.TempPathFactory, valkey: Valkey, pytestconfig: pytest.Config
) -> Iterator[PooledDeployment]:
    """Run one deployment for all tests."""
    with contextlib.ExitStack() as running:
        cluster = running.enter_context(own_cluster(pytestconfig))
        with needed(pytestconfig, "through a PgBouncer of their own"):
            pooler = running.enter_context(poolers.PgBouncer(cluster.url("postgres"), settings=_FAST_RETRY))
        url = cluster.fresh_database()
        deployment = running.enter_context(
            deployed(
                tmp_path_factory.mktemp("pooled"),
                url,
                pooler.url(url),
                own_limits_url(valkey),
                DATABASE_PREPARED="off",
            )
        )
        yield PooledDeployment(deployment, cluster, pooler)


def _run_under_load(proxied: OwnStoresDeployment, fault: Fault) -> Partners:
    """Return the programs of partners after the fault."""

    async def body() -> Partners:
        async with under_load(proxied.deployment) as partners:
            await fault(proxied, partners)
        return partners

    return asyncio.run(body())


def _assert_unnoticed(patient: ProxiedDeployment, fault: ProxiedFault) -> None:
    """Assert that no request fails."""

    async def body() -> None:
        async with under_load(patient.deployment) as partners:
            await fault(patient, partners)
        assert partners.seen.statuses[503] == 0

    asyncio.run(body())


# PostgreSQL ends


def test_postgresql_crashes(proxied: OwnStoresDeployment) -> None:
    """kill -9, and a later restart."""

    _run_under_load(proxied, crash_postgresql)


def test_postgresql_is_restarted(proxied: OwnStoresDeployment) -> None:
    """The operator does not wait for open transactions."""

    _run_under_load(proxied, restart_postgresql)


def test_a_standby_takes_over(tmp_path: Path, valkey: Valkey, pytestconfig: pytest.Config) -> None:
    """The primary crashes for good and the standby is promoted: the servers find it, with every confirmed write."""

    async def body(deployment: DeploymentUnderLoad, primary: services.Cluster, standby_url: str) -> None:
        async with under_load(deployment) as partners:
            await asyncio.to_thread(primary.kill)
            await partners.wait_for_refusals(20)
            promoting = await asyncpg.connect(standby_url)
            assert await promoting.fetchval("SELECT pg_promote()")
            await promoting.close()

    with contextlib.ExitStack() as running:
        primary = running.enter_context(own_cluster(pytestconfig))
        standby = running.enter_context(hosts.Standby(primary))
        url = primary.fresh_database()
        both = f"{standby.url_of_both(url)}?target_session_attrs=read-write"
        deployment = running.enter_context(deployed(tmp_path, both, both, own_limits_url(valkey)))
        asyncio.run(body(deployment, primary, standby.url_of(url)))


# A frozen store


# Another address than the partners', because concurrent requests are limited per address.
_OTHER_ADDRESS = ("127.0.0.9", 0)


class ConcurrentCallers:
    """Callers on separate connections that all send at the same time."""

    def __init__(self, server: RunningServer, count: int) -> None:
        self._workers = psutil.Process(server.process.pid).children(recursive=True)
        tls, address = server.tls, ("127.0.0.1", server.port)
        self._lines = [
            tls.wrap_socket(socket.create_connection(address, PATIENCE_S, _OTHER_ADDRESS), server_hostname="localhost")
            for _ in range(count)
        ]

    def send(self, request: bytes) -> list[tuple[int, bytes]]:
        """Send the request on every connection, and return the status and body of each answer."""
        for line in self._lines:
            line.sendall(request)
        return [self._answer(line) for line in self._lines]

    def server_bytes(self) -> int:
        """Return the memory of the server's processes."""
        return sum(int(worker.memory_info().rss) for worker in self._workers)

    def leave(self) -> None:
        for line in self._lines:
            line.close()

    def _answer(self, line: socket.socket) -> tuple[int, bytes]:
        with contextlib.closing(HTTPResponse(line)) as answer:
            answer.begin()
            return answer.status, answer.read()


@in_own_loop
async def test_either_store_freezes(proxied: OwnStoresDeployment, patient: ProxiedDeployment) -> None:
    """Each stands still for 20 s. Without PostgreSQL each request is refused in time, and memory is bounded.

    Most of hundreds are refused at once. Without the limit store none is refused, and each process counts alone.
    """
    async with (
        under_load(proxied.deployment) as without_database,
        under_load(patient.deployment) as without_limits,
    ):
        without_limits.pace_s = PACE_WHILE_FROZEN_S
        with frozen(proxied.cluster), frozen(patient.valkey):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(FROZEN_S))
                group.create_task(_assert_callers_refused(proxied.deployment.server, without_database))
                group.create_task(assert_counting_alone(patient.deployment, without_limits))
        await wait_for_counting_alone(patient.deployment, 0)
    assert without_limits.seen.statuses[503] == 0


async def _assert_callers_refused(server: RunningServer, partners: Partners) -> None:
    """Assert that no caller is accepted, and only as many wait as may."""
    callers = await asyncio.to_thread(ConcurrentCallers, server, CALLERS)
    try:
        before_bytes = callers.server_bytes()
        began_s = time.monotonic()
        answers = await asyncio.to_thread(callers.send, load.call(partners.token))
        took_s = time.monotonic() - began_s
        grown_bytes = callers.server_bytes() - before_bytes
    finally:
        callers.leave()
    # All come from one address: so many are authenticated at once, until their time is over, and the others refused.
    statuses = Counter(status for status, _ in answers)
    assert set(statuses) == {429, 503}
    assert statuses[503] <= WORKERS * AUTHENTICATED_AT_ONCE * (1 + took_s / ACQUIRE_TIMEOUT_S)
    assert grown_bytes < MAX_GROWTH_BYTES


# The limit store ends


def test_the_limit_store_crashes_and_comes_back_empty(patient: ProxiedDeployment) -> None:
    """No request fails, and no process accepts more than it would alone."""
    _assert_unnoticed(patient, crash_limit_store)


@pytest.mark.parametrize("fault", [slow_limit_store, cut_limit_store_off])
def test_the_limit_store_is_slow_or_unreachable(patient: ProxiedDeployment, fault: ProxiedFault) -> None:
    """Answers after 400 ms, or none: no request fails, and each process counts alone."""
    _assert_unnoticed(patient, fault)


# The network


def test_postgresql_is_cut_off(proxied: OwnStoresDeployment) -> None:
    """It is away for a while, and then for moments."""

    _run_under_load(proxied, cut_postgresql_off)


def test_postgresql_is_far_away(patient: ProxiedDeployment) -> None:
    """Each answer takes 30 ms: everything takes longer, and nothing fails."""
    _assert_unnoticed(patient, delay_postgresql)


def test_the_answer_to_a_commit_is_lost(proxied: OwnStoresDeployment) -> None:
    """The partner gets a 503 for every commit, sends the batch again, and is told that all of it is stored."""
    partners = _run_under_load(proxied, lose_answers_to_commits)
    assert all(writer.whole >= TURNS - 1 for writer in partners.writers)
    assert sum(writer.absent for writer in partners.writers) == 0


def test_the_answer_to_a_rotation_is_lost_once(proxied: OwnStoresDeployment) -> None:
    """The server finds out, and the partner notices nothing."""
    assert None not in _run_under_load(proxied, lose_answers_to_rotations).rotations.values()


def test_the_answer_to_a_rotation_is_lost_twice(proxied: OwnStoresDeployment) -> None:
    """The server says that the outcome is unknown."""
    assert None in _run_under_load(proxied, lose_answers_to_rotations_twice).rotations.values()


# PostgreSQL refuses


@pytest.mark.parametrize("fault", [refuse_logins, refuse_writes])
def test_postgresql_refuses_logins_or_writes(proxied: OwnStoresDeployment, fault: Fault) -> None:
    """It does so from one moment to the next. After it allows them again, no old connection is used."""
    _run_under_load(proxied, fault)


def test_statements_time_out(proxied: OwnStoresDeployment) -> None:
    """Another session locks tables, and the database's statement timeout is shorter than ours."""

    _run_under_load(proxied, time_statements_out)


def test_the_disk_is_full(proxied: OwnStoresDeployment) -> None:
    """No page can be added for a token or a batch: no token is rotated and no batch stored until there is space."""

    assert None not in _run_under_load(proxied, fill_disk).rotations.values()


# With a pooler


@in_own_loop
async def test_pgbouncer_crashes(pooled: PooledDeployment) -> None:
    """kill -9, and a later restart."""
    async with under_load(pooled.deployment) as partners:
        await asyncio.to_thread(pooled.pooler.kill)
        await partners.wait_for_refusals(20)
        await asyncio.to_thread(pooled.pooler.start)


@in_own_loop
async def test_postgresql_is_restarted_behind_pgbouncer(pooled: PooledDeployment) -> None:
    """Its clients keep their connections meanwhile."""
    async with under_load(pooled.deployment) as partners:
        await asyncio.to_thread(pooled.cluster.stop)
        await partners.wait_for_refusals(5)
        await asyncio.to_thread(pooled.cluster.start)
