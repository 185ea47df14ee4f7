"""Stores that crash, stand still, are cut off, slow, full or replaced, under a server of two workers and under load.

After each: everything answered 200 is there, no batch and no rotation is half, nobody was taken for a thief, no limit
was exceeded, and service is back without a hand. Source: docs/interface.md sections D1, D2, D4, D6 and D8.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

import asyncpg
import psutil
import pytest

from stoplist.db.pools import MAX_WAITING_REQUESTS
from stoplist.ids import hash_secret
from stoplist.web.concurrency_limit import MAX_CONCURRENT_PER_SOURCE
from tests.conftest import leave_out
from tests.db import hosts
from tests.e2e import load
from tests.e2e.at_work import HEALED_WITHIN_S, Partners, until
from tests.e2e.conftest import own_limits_url
from tests.e2e.running import PATIENCE_S, Server
from tests.e2e.under_load import TURNS, WORKERS, Deployment, deployed, under_load
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services
from tests.services import valkey as limit_stores
from tests.services.proxy import Proxy, proxy
from tests.services.valkey import Valkey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROLE = "server"
FROZEN_S = 20.0
CALLERS = 2_600
MAY_GROW_BYTES = 100 << 20
# By itself PgBouncer waits 15 s before it asks a PostgreSQL again that it could not reach.
_SOON = {"server_login_retry": "1"}


class Proxied(NamedTuple):
    """A deployment with a network between server and stores; its PostgreSQL is the test's own."""

    deployment: Deployment
    cluster: services.Cluster
    to_database: Proxy
    to_limits: Proxy


class Pooled(NamedTuple):
    """A deployment behind PgBouncer; all its stores are the test's own."""

    deployment: Deployment
    cluster: services.Cluster
    pooler: poolers.PgBouncer
    valkey: Valkey


@contextlib.contextmanager
def _own_cluster(config: pytest.Config) -> Iterator[services.Cluster]:
    """A PostgreSQL that gathers no statistics by itself: whether it has some in the middle of a test would be luck."""
    with contextlib.ExitStack() as running:
        try:
            cluster = running.enter_context(hosts.own_cluster())
        except services.Unavailable as error:
            leave_out(config, "on a PostgreSQL of their own", str(error))
        cluster.execute("ALTER SYSTEM SET autovacuum = off")
        cluster.execute("SELECT pg_reload_conf()")
        yield cluster


@pytest.fixture(scope="module")
def all_proxied(
    tmp_path_factory: pytest.TempPathFactory, valkey: Valkey, pytestconfig: pytest.Config
) -> Iterator[Proxied]:
    """One for all tests. The server is no superuser of the database."""
    with contextlib.ExitStack() as running:
        cluster = running.enter_context(_own_cluster(pytestconfig))
        administrators_url = cluster.fresh_database()
        name = administrators_url.rpartition("/")[2]
        cluster.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'")
        cluster.execute(f'ALTER DATABASE "{name}" OWNER TO {ROLE}')
        url = f"postgresql://{ROLE}:x@127.0.0.1:{cluster.port}/{name}"
        limits_url = own_limits_url(valkey)
        to_database, to_limits = running.enter_context(proxy(url)), running.enter_context(proxy(limits_url))
        deployment = running.enter_context(
            deployed(tmp_path_factory.mktemp("proxied"), url, to_database.url(url), to_limits.url(limits_url))
        )
        yield Proxied(deployment, cluster, to_database, to_limits)


@pytest.fixture
def proxied(all_proxied: Proxied) -> Iterator[Proxied]:
    """What a test breaks is whole after it, also when it fails."""
    yield all_proxied
    for default in ("CONNECTION LIMIT -1", "RESET ALL"):
        all_proxied.cluster.execute(f"ALTER ROLE {ROLE} {default}")
    for between in (all_proxied.to_database, all_proxied.to_limits):
        between.drop_answers_after(None)
        between.delay(0)
        between.mend()


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Pooled]:
    """One for all tests."""
    with contextlib.ExitStack() as running:
        cluster = running.enter_context(_own_cluster(pytestconfig))
        try:
            pooler = running.enter_context(poolers.pgbouncer(cluster.url("postgres"), settings=_SOON))
            valkey = running.enter_context(limit_stores.valkey())
        except (poolers.Unavailable, limit_stores.Unavailable) as error:
            leave_out(pytestconfig, "on stores of their own", str(error))
        url = cluster.fresh_database()
        deployment = running.enter_context(
            deployed(tmp_path_factory.mktemp("pooled"), url, pooler.url(url), valkey.url, DATABASE_PREPARED="off")
        )
        yield Pooled(deployment, cluster, pooler, valkey)


# PostgreSQL goes


def test_postgresql_crashes(proxied: Proxied) -> None:
    """kill -9, and it is started again later."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            await asyncio.to_thread(hosts.crash, proxied.cluster)
            await partners.were_refused(20)
            await asyncio.to_thread(proxied.cluster.stop, keep=True)
            await asyncio.to_thread(proxied.cluster.start)

    asyncio.run(body())


def test_postgresql_is_restarted(proxied: Proxied) -> None:
    """As an operator does it, who waits for nobody's transactions."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            for _ in range(2):
                await asyncio.to_thread(proxied.cluster.stop, keep=True)
                await asyncio.to_thread(proxied.cluster.start)
                await partners.each_had(1)

    asyncio.run(body())


def test_a_standby_takes_over(tmp_path: Path, valkey: Valkey, pytestconfig: pytest.Config) -> None:
    """The primary crashes for good and the standby is promoted: the servers find it, with all that was answered."""

    async def body(deployment: Deployment, primary: services.Cluster, standby_url: str) -> None:
        async with under_load(deployment) as partners:
            await asyncio.to_thread(hosts.crash, primary)
            await partners.were_refused(20)
            promoting = await asyncpg.connect(standby_url)
            assert await promoting.fetchval("SELECT pg_promote()")
            await promoting.close()

    with contextlib.ExitStack() as running:
        primary = running.enter_context(_own_cluster(pytestconfig))
        standby = running.enter_context(hosts.standby(primary))
        url = primary.fresh_database()
        both = f"{standby.both(url)}?target_session_attrs=read-write"
        deployment = running.enter_context(deployed(tmp_path, both, both, own_limits_url(valkey)))
        asyncio.run(body(deployment, primary, standby.url(url)))


# A store stands still


# Not where the other partners are: of each address so many are looked into at once.
_ELSEWHERE = ("127.0.0.9", 0)


class PerSourceConcurrency:
    """Callers over connections of their own, all of whom ask at the same time."""

    def __init__(self, server: Server, count: int) -> None:
        self._workers = psutil.Process(server.process.pid).children(recursive=True)
        tls, address = server.tls, ("127.0.0.1", server.port)
        self._lines = [
            tls.wrap_socket(socket.create_connection(address, PATIENCE_S, _ELSEWHERE), server_hostname="localhost")
            for _ in range(count)
        ]

    def acquire(self, request: bytes) -> list[tuple[int, bytes]]:
        """Status and body of each answer."""
        for line in self._lines:
            line.sendall(request)
        return [self._answer(line) for line in self._lines]

    def server_bytes(self) -> int:
        """How much memory the server's processes take."""
        return sum(int(worker.memory_info().rss) for worker in self._workers)

    def leave(self) -> None:
        for line in self._lines:
            line.close()

    def _answer(self, line: socket.socket) -> tuple[int, bytes]:
        answer = HTTPResponse(line)
        answer.begin()
        return answer.status, answer.read()


def test_either_store_stands_still(proxied: Proxied, pooled: Pooled) -> None:
    """For 20 s. Without PostgreSQL each request is refused in time, of thousands most at once, and memory is bounded.

    Without the limit store none is, and each process counts alone.
    """

    async def body() -> None:
        async with (
            under_load(proxied.deployment) as without_database,
            under_load(pooled.deployment) as without_limits,
        ):
            hosts.freeze(proxied.cluster)
            pooled.valkey.freeze()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(FROZEN_S))
                    group.create_task(_come_all_at_once(proxied.deployment.server, without_database))
                    group.create_task(_count_alone(pooled.deployment, without_limits))
            finally:
                hosts.thaw(proxied.cluster)
                pooled.valkey.thaw()
            await _lost(pooled.deployment, 0)
        assert without_limits.seen.statuses[503] == 0

    asyncio.run(body())


async def _come_all_at_once(server: Server, partners: Partners) -> None:
    """Nobody is let in, and as many as may wait do."""
    crowd = await asyncio.to_thread(PerSourceConcurrency, server, CALLERS)
    try:
        before_bytes = crowd.server_bytes()
        answers = await asyncio.to_thread(crowd.acquire, load.call(partners.issued[0]["access_token"]))
        grown_bytes = crowd.server_bytes() - before_bytes
    finally:
        crowd.leave()
    # All come from one address: so many of it are looked into at once, and the others refused before that.
    assert {status for status, _ in answers} == {429, 503}
    refused_at_once = sum(status == 429 for status, _ in answers)
    assert refused_at_once >= CALLERS - WORKERS * MAX_CONCURRENT_PER_SOURCE - MAX_WAITING_REQUESTS
    assert grown_bytes < MAY_GROW_BYTES


# The limit store goes


async def _lost(deployment: Deployment, workers: int) -> None:
    """So many workers count alone."""
    async with asyncio.timeout(HEALED_WITHIN_S):
        while await asyncio.to_thread(deployment.metric, "limit_store_lost") != workers:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _count_alone(deployment: Deployment, partners: Partners) -> None:
    """All workers do, and partners notice nothing."""
    await _lost(deployment, WORKERS)
    await partners.each_had(TURNS)
    assert await asyncio.to_thread(deployment.metric, "limits_decided_alone_total") > 0


def test_the_limit_store_crashes_and_comes_back_empty(pooled: Pooled) -> None:
    """No request fails, and no process lets more in than it would alone."""

    async def body() -> None:
        async with under_load(pooled.deployment) as partners:
            pooled.valkey.kill()
            await _count_alone(pooled.deployment, partners)
            await asyncio.to_thread(pooled.valkey.start)
            await _lost(pooled.deployment, 0)
        assert partners.seen.statuses[503] == 0

    asyncio.run(body())


@pytest.mark.parametrize("how", ["slow", "cut off"])
def test_the_limit_store_is_hard_to_reach(proxied: Proxied, how: str) -> None:
    """It answers after 400 ms, or not at all: the same holds."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            proxied.to_limits.delay(0.4) if how == "slow" else proxied.to_limits.cut()
            await _count_alone(proxied.deployment, partners)
            proxied.to_limits.delay(0) if how == "slow" else proxied.to_limits.mend()
            await _lost(proxied.deployment, 0)
        assert partners.seen.statuses[503] == 0

    asyncio.run(body())


# The network


def test_postgresql_is_cut_off(proxied: Proxied) -> None:
    """For a while, and then for moments."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            proxied.to_database.cut()
            await partners.were_refused(20)
            proxied.to_database.mend()
            for _ in range(4):
                await partners.each_had(1)
                proxied.to_database.cut()
                proxied.to_database.mend()

    asyncio.run(body())


def test_postgresql_is_far_away(proxied: Proxied) -> None:
    """Each of its answers takes 30 ms: everything takes longer, and nothing fails."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            proxied.to_database.delay(0.03)
            await partners.each_had(TURNS)
            proxied.to_database.delay(0)
        assert partners.seen.statuses[503] == 0

    asyncio.run(body())


def test_the_answer_to_a_commit_is_lost(proxied: Proxied) -> None:
    """Every one of them: the partner is told 503, sends the batch again, and hears that all of it is there."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            proxied.to_database.drop_answers_after(lambda sent: b"COMMIT\0" in sent)
            await partners.each_had(TURNS)
            proxied.to_database.drop_answers_after(None)
        assert all(writer.whole >= TURNS - 1 for writer in partners.writers)
        assert sum(writer.absent for writer in partners.writers) == 0

    asyncio.run(body())


@pytest.mark.parametrize("times", [1, 2])
def test_the_answer_to_a_rotation_is_lost(proxied: Proxied, times: int) -> None:
    """Once: the server finds out, and the partner notices nothing. Twice: it says that nobody knows."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            proxied.to_database.drop_answers_after(_rotations(partners, times))
            await _until_dropped(proxied.to_database, 10)
            proxied.to_database.drop_answers_after(None)
        assert (None in partners.rotations.values()) == (times == 2)

    asyncio.run(body())


def _rotations(partners: Partners, times: int) -> Callable[[bytes], bool]:
    """Of the statements that name a refresh token which is presented, those that rotate it: all after the first."""
    asked: Counter[str] = Counter()

    def is_rotation(sent: bytes) -> bool:
        for token in partners.presented[-4:]:
            if hash_secret(token) in sent:
                asked[token] += 1
                return 1 < asked[token] <= 1 + times
        return False

    return is_rotation


async def _until_dropped(between: Proxy, more: int) -> None:
    """So many answers more were lost on the way."""
    goal = between.dropped + more
    await until(lambda: between.dropped >= goal, lambda: str(between.dropped))


# PostgreSQL says no

_GROW = """
    CREATE FUNCTION grow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO on_full_disk VALUES (1); RETURN NEW;
    END $$;
    CREATE TRIGGER grow AFTER INSERT ON token_pairs FOR EACH ROW EXECUTE FUNCTION grow();
    CREATE TRIGGER grow AFTER INSERT ON submissions FOR EACH ROW EXECUTE FUNCTION grow()"""
_GROW_NO_MORE = "DROP TRIGGER grow ON token_pairs; DROP TRIGGER grow ON submissions"
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'server'"


@pytest.mark.parametrize(
    ("setting", "default"),
    [
        ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1"),
        ("SET default_transaction_read_only = on", "RESET default_transaction_read_only"),
    ],
)
def test_postgresql_lets_nobody_in_or_nobody_write(proxied: Proxied, setting: str, default: str) -> None:
    """From one moment to the next. When it does again, no connection stays as it was."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            await asyncio.to_thread(proxied.cluster.execute, f"ALTER ROLE {ROLE} {setting}")
            await asyncio.to_thread(proxied.cluster.execute, _TERMINATE)
            await partners.were_refused(20)
            await asyncio.to_thread(proxied.cluster.execute, f"ALTER ROLE {ROLE} {default}")

    asyncio.run(body())


def test_statements_time_out(proxied: Proxied) -> None:
    """Tables are locked by somebody else, and the server of the database has less patience than we."""

    async def body() -> None:
        async with under_load(proxied.deployment) as partners:
            await asyncio.to_thread(proxied.cluster.execute, f"ALTER ROLE {ROLE} SET statement_timeout = '0.2s'")
            await asyncio.to_thread(proxied.cluster.execute, _TERMINATE)
            other = await asyncpg.connect(proxied.deployment.direct.database_url)
            await other.execute("BEGIN; LOCK TABLE token_pairs, submissions IN ACCESS EXCLUSIVE MODE")
            await partners.were_refused(20)
            await other.close()
            await asyncio.to_thread(proxied.cluster.execute, f"ALTER ROLE {ROLE} RESET statement_timeout")
            await asyncio.to_thread(proxied.cluster.execute, _TERMINATE)

    asyncio.run(body())


def test_the_disk_is_full(proxied: Proxied) -> None:
    """No page can be added for a token or a batch: no token is rotated, and no batch begun, until there is room."""

    async def body() -> None:
        database = services.Server(proxied.deployment.direct.database_url)
        async with under_load(proxied.deployment) as partners:
            await asyncio.to_thread(_make_table_on_full_disk, proxied.cluster, database)
            await asyncio.to_thread(database.execute, _GROW)
            await partners.were_refused(20)
            await asyncio.to_thread(database.execute, _GROW_NO_MORE)
        assert None not in partners.rotations.values()

    asyncio.run(body())


def _make_table_on_full_disk(cluster: services.Cluster, database: services.Server) -> None:
    """PostgreSQL itself finds that there is no room for its first page."""
    database.execute("CREATE TABLE on_full_disk (one INTEGER)")
    file = cluster.folder / "data" / database.value("SELECT pg_relation_filepath('on_full_disk')")
    file.unlink()
    file.symlink_to("/dev/full")


# A pooler in between


def test_pgbouncer_crashes(pooled: Pooled) -> None:
    """kill -9, and it is started again later."""

    async def body() -> None:
        async with under_load(pooled.deployment) as partners:
            await asyncio.to_thread(pooled.pooler.kill)
            await partners.were_refused(20)
            await asyncio.to_thread(pooled.pooler.start)

    asyncio.run(body())


def test_postgresql_is_restarted_behind_pgbouncer(pooled: Pooled) -> None:
    """Whose clients keep their connections all the while."""

    async def body() -> None:
        async with under_load(pooled.deployment) as partners:
            await asyncio.to_thread(pooled.cluster.stop, keep=True)
            await partners.were_refused(5)
            await asyncio.to_thread(pooled.cluster.start)

    asyncio.run(body())
