"""Stores that crash, freeze, are cut off, slow, full or replaced, under a server of two workers and under load.

Afterwards everything answered 200 is stored, no batch and no rotation is incomplete, no reuse alarm was raised, no
limit was exceeded, and the service has recovered by itself. Source: docs/interface.md sections D1, D2, D4, D6 and D8.
"""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

import asyncpg
import psutil
import pytest

from stoplist.db.pools import ACQUIRE_TIMEOUT_S
from stoplist.ids import hash_secret
from stoplist.web import concurrency_limit
from tests.conftest import needed
from tests.constants import PATIENCE_S
from tests.db import hosts
from tests.e2e import load
from tests.e2e.conftest import own_limits_url
from tests.e2e.partner_programs import Partners, wait_until
from tests.e2e.server_process import RunningServer
from tests.e2e.store_faults import (
    Fault,
    ProxiedDeployment,
    assert_counting_alone,
    crash_postgresql,
    cut_postgresql_off,
    lose_answers_to_commits,
    proxied_deployment,
    refuse_logins,
    refuse_writes,
    restart_postgresql,
    time_statements_out,
    wait_for_counting_alone,
)
from tests.e2e.under_load import TURNS, WORKERS, DeploymentUnderLoad, deployed, own_cluster, under_load
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services
from tests.services import valkey as limit_stores
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


class PatientDeployment(NamedTuple):
    """A deployment that waits long for PostgreSQL, for faults in which no request may fail.

    It has network proxies before its stores; its limit store belongs to the test.
    """

    deployment: DeploymentUnderLoad
    to_database: Proxy
    to_limits: Proxy
    valkey: Valkey


class PooledDeployment(NamedTuple):
    """A deployment behind PgBouncer; pooler and PostgreSQL belong to the test."""

    deployment: DeploymentUnderLoad
    cluster: services.Cluster
    pooler: poolers.PgBouncer


@pytest.fixture(scope="module")
def all_proxied(
    tmp_path_factory: pytest.TempPathFactory, valkey: Valkey, pytestconfig: pytest.Config
) -> Iterator[ProxiedDeployment]:
    """Run one deployment for all tests."""
    folder = tmp_path_factory.mktemp("proxied")
    first = setting_constants({(concurrency_limit, "MAX_CONCURRENT_PER_SOURCE"): AUTHENTICATED_AT_ONCE})
    with proxied_deployment(folder, valkey, pytestconfig, first=first) as deployment:
        yield deployment


@pytest.fixture
def proxied(all_proxied: ProxiedDeployment) -> Iterator[ProxiedDeployment]:
    """Yield the deployment, and repair what a test breaks, even if it fails."""
    yield all_proxied
    all_proxied.repair()


@pytest.fixture(scope="module")
def all_patient(
    tmp_path_factory: pytest.TempPathFactory, postgresql: services.PostgresqlServer, pytestconfig: pytest.Config
) -> Iterator[PatientDeployment]:
    """Run one deployment for all tests."""
    with contextlib.ExitStack() as running:
        with needed(pytestconfig, "on a limit store of their own"):
            valkey = running.enter_context(limit_stores.Valkey())
        url = postgresql.fresh_database("patient")
        running.callback(postgresql.drop_database, url)
        to_database, to_limits = running.enter_context(Proxy(url)), running.enter_context(Proxy(valkey.url))
        urls = url, to_database.url(url), to_limits.url(valkey.url)
        deployment = running.enter_context(
            deployed(tmp_path_factory.mktemp("patient"), *urls, first=setting_constants(LONG_DATABASE | LONG_READS))
        )
        yield PatientDeployment(deployment, to_database, to_limits, valkey)


@pytest.fixture
def patient(all_patient: PatientDeployment) -> Iterator[PatientDeployment]:
    """Yield the deployment, and repair what a test breaks in its network, even if it fails."""
    yield all_patient
    for between in (all_patient.to_database, all_patient.to_limits):
        between.delay(0)
        between.mend()


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


def _run_under_load(proxied: ProxiedDeployment, fault: Fault) -> None:
    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            await fault(proxied, partners)

    asyncio.run(body())


# PostgreSQL ends


def test_postgresql_crashes(proxied: ProxiedDeployment) -> None:
    """kill -9, and a later restart."""

    _run_under_load(proxied, crash_postgresql)


def test_postgresql_is_restarted(proxied: ProxiedDeployment) -> None:
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


def test_either_store_freezes(proxied: ProxiedDeployment, patient: PatientDeployment) -> None:
    """Each stands still for 20 s. Without PostgreSQL each request is refused in time, and memory is bounded.

    Most of hundreds are refused at once. Without the limit store none is refused, and each process counts alone.
    """

    async def body() -> None:
        async with (
            under_load(proxied.deployment) as without_database,
            under_load(patient.deployment) as without_limits,
        ):
            without_limits.pace_s = PACE_WHILE_FROZEN_S
            proxied.cluster.freeze()
            patient.valkey.freeze()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(FROZEN_S))
                    group.create_task(_assert_callers_refused(proxied.deployment.server, without_database))
                    group.create_task(assert_counting_alone(patient.deployment, without_limits))
            finally:
                proxied.cluster.thaw()
                patient.valkey.thaw()
            await wait_for_counting_alone(patient.deployment, 0)
        assert without_limits.seen.statuses[503] == 0

    asyncio.run(body())


async def _assert_callers_refused(server: RunningServer, partners: Partners) -> None:
    """Assert that no caller is accepted, and only as many wait as may."""
    callers = await asyncio.to_thread(ConcurrentCallers, server, CALLERS)
    try:
        before_bytes = callers.server_bytes()
        began_s = time.monotonic()
        answers = await asyncio.to_thread(callers.send, load.call(partners.issued[0]["access_token"]))
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


def test_the_limit_store_crashes_and_comes_back_empty(patient: PatientDeployment) -> None:
    """No request fails, and no process accepts more than it would alone."""

    async def body() -> None:
        async with under_load(patient.deployment) as partners:
            patient.valkey.kill()
            await assert_counting_alone(patient.deployment, partners)
            await asyncio.to_thread(patient.valkey.start)
            await wait_for_counting_alone(patient.deployment, 0)
        assert partners.seen.statuses[503] == 0

    asyncio.run(body())


@pytest.mark.parametrize("how", ["slow", "cut off"])
def test_the_limit_store_is_slow_or_unreachable(patient: PatientDeployment, how: str) -> None:
    """Answers after 400 ms, or none: no request fails, and each process counts alone."""

    async def body() -> None:
        async with under_load(patient.deployment) as partners:
            patient.to_limits.delay(0.4) if how == "slow" else patient.to_limits.cut()
            await assert_counting_alone(patient.deployment, partners)
            patient.to_limits.delay(0) if how == "slow" else patient.to_limits.mend()
            await wait_for_counting_alone(patient.deployment, 0)
        assert partners.seen.statuses[503] == 0

    asyncio.run(body())


# The network


def test_postgresql_is_cut_off(proxied: ProxiedDeployment) -> None:
    """It is away for a while, and then for moments."""

    _run_under_load(proxied, cut_postgresql_off)


def test_postgresql_is_far_away(patient: PatientDeployment) -> None:
    """Each answer takes 30 ms: everything takes longer, and nothing fails."""

    async def body() -> None:
        async with under_load(patient.deployment) as partners:
            patient.to_database.delay(0.03)
            await partners.wait_for_successes(TURNS)
            patient.to_database.delay(0)
        assert partners.seen.statuses[503] == 0

    asyncio.run(body())


def test_the_answer_to_a_commit_is_lost(proxied: ProxiedDeployment) -> None:
    """The partner gets a 503 for every commit, sends the batch again, and is told that all of it is stored."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            await lose_answers_to_commits(proxied, partners)
        assert all(writer.whole >= TURNS - 1 for writer in partners.writers)
        assert sum(writer.absent for writer in partners.writers) == 0

    asyncio.run(body())


@pytest.mark.parametrize("times", [1, 2])
def test_the_answer_to_a_rotation_is_lost(proxied: ProxiedDeployment, times: int) -> None:
    """Once: the server finds out, and the partner notices nothing. Twice: it says that the outcome is unknown."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            proxied.to_database.drop_answers_after(_rotation_filter(partners, times))
            await _wait_until_dropped(proxied.to_database, 10)
            proxied.to_database.drop_answers_after(None)
        assert (None in partners.rotations.values()) == (times == 2)

    asyncio.run(body())


def _rotation_filter(partners: Partners, times: int) -> Callable[[bytes], bool]:
    """Return a filter for rotations: of the statements that name a presented token, all after the first."""
    asked: Counter[str] = Counter()

    def is_rotation(sent: bytes) -> bool:
        for token in partners.presented[-4:]:
            if hash_secret(token) in sent:
                asked[token] += 1
                return 1 < asked[token] <= 1 + times
        return False

    return is_rotation


async def _wait_until_dropped(between: Proxy, more: int) -> None:
    """Wait until so many more answers are lost."""
    goal = between.dropped + more
    await wait_until(lambda: between.dropped >= goal, lambda: str(between.dropped))


# PostgreSQL refuses

_FILL_DISK = """
    CREATE FUNCTION grow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO on_full_disk VALUES (1); RETURN NEW;
    END $$;
    CREATE TRIGGER grow AFTER INSERT ON token_pairs FOR EACH ROW EXECUTE FUNCTION grow();
    CREATE TRIGGER grow AFTER INSERT ON submissions FOR EACH ROW EXECUTE FUNCTION grow()"""
_STOP_FILLING = "DROP TRIGGER grow ON token_pairs; DROP TRIGGER grow ON submissions"


@pytest.mark.parametrize("fault", [refuse_logins, refuse_writes])
def test_postgresql_refuses_logins_or_writes(proxied: ProxiedDeployment, fault: Fault) -> None:
    """It does so from one moment to the next. After it allows them again, no old connection is used."""
    _run_under_load(proxied, fault)


def test_statements_time_out(proxied: ProxiedDeployment) -> None:
    """Another session locks tables, and the database's statement timeout is shorter than ours."""

    _run_under_load(proxied, time_statements_out)


def test_the_disk_is_full(proxied: ProxiedDeployment) -> None:
    """No page can be added for a token or a batch: no token is rotated and no batch stored until there is space."""

    async def body() -> None:
        database = services.PostgresqlServer(proxied.deployment.direct.database_url)
        async with under_load(proxied.deployment) as partners:
            await asyncio.to_thread(_create_table_on_full_disk, proxied.cluster, database)
            await asyncio.to_thread(database.execute, _FILL_DISK)
            await partners.wait_for_refusals(20)
            await asyncio.to_thread(database.execute, _STOP_FILLING)
        assert None not in partners.rotations.values()

    asyncio.run(body())


def _create_table_on_full_disk(cluster: services.Cluster, database: services.PostgresqlServer) -> None:
    """Create a table whose first page PostgreSQL cannot store."""
    database.execute("CREATE TABLE on_full_disk (one INTEGER)")
    file = cluster.folder / "data" / database.value("SELECT pg_relation_filepath('on_full_disk')")
    file.unlink()
    file.symlink_to("/dev/full")


# With a pooler


def test_pgbouncer_crashes(pooled: PooledDeployment) -> None:
    """kill -9, and a later restart."""

    async def body() -> None:
        async with under_load(pooled.deployment) as partners:
            await asyncio.to_thread(pooled.pooler.kill)
            await partners.wait_for_refusals(20)
            await asyncio.to_thread(pooled.pooler.start)

    asyncio.run(body())


def test_postgresql_is_restarted_behind_pgbouncer(pooled: PooledDeployment) -> None:
    """Its clients keep their connections meanwhile."""

    async def body() -> None:
        async with under_load(pooled.deployment) as partners:
            await asyncio.to_thread(pooled.cluster.stop)
            await partners.wait_for_refusals(5)
            await asyncio.to_thread(pooled.cluster.start)

    asyncio.run(body())
