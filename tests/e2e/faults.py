"""Faults of the stores and workers of a server under load: each breaks something for a while, and is over on return."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests.conftest import needed
from tests.e2e.partner_programs import Partners, wait_until
from tests.e2e.server_process import workers
from tests.e2e.under_load import TURNS, WORKERS, DeploymentUnderLoad, deployed, own_cluster
from tests.services import postgresql as services
from tests.services import valkey as limit_stores
from tests.services.managed_program import ManagedProgram
from tests.services.proxy import Proxy

ROLE = "server"
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'server'"
# Longer than a token request may take, and far below every time limit of the server.
_SLOW_INSERTS = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.1); RETURN NULL; END';
    CREATE TRIGGER wait BEFORE INSERT ON token_pairs FOR EACH STATEMENT EXECUTE FUNCTION wait()"""
_FILL_DISK = """
    CREATE FUNCTION grow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO on_full_disk VALUES (1); RETURN NEW;
    END $$;
    CREATE TRIGGER grow AFTER INSERT ON token_pairs FOR EACH ROW EXECUTE FUNCTION grow();
    CREATE TRIGGER grow AFTER INSERT ON submissions FOR EACH ROW EXECUTE FUNCTION grow()"""
_STOP_FILLING = "DROP FUNCTION IF EXISTS grow CASCADE; DROP TABLE on_full_disk"


@dataclass(frozen=True)
class ProxiedDeployment:
    """A deployment with network proxies before its stores; its limit store belongs to the test."""

    deployment: DeploymentUnderLoad
    to_database: Proxy
    to_limits: Proxy
    valkey: limit_stores.Valkey

    def repair(self) -> None:
        """End what a fault that was interrupted left behind."""
        if not self.valkey.is_running:
            self.valkey.start()
        for between in (self.to_database, self.to_limits):
            between.drop_answers_after(None)
            between.delay(0)
            between.mend()


@dataclass(frozen=True)
class OwnStoresDeployment(ProxiedDeployment):
    """Such a deployment whose PostgreSQL belongs to the test, too."""

    cluster: services.Cluster

    async def execute(self, statement: str) -> None:
        """Run a statement as the administrator of the database."""
        await asyncio.to_thread(self.cluster.execute, statement)

    def repair(self) -> None:
        super().repair()
        if not self.cluster.is_running:
            self.cluster.start()
        for default in ("CONNECTION LIMIT -1", "RESET ALL"):
            self.cluster.execute(f"ALTER ROLE {ROLE} {default}")


Fault = Callable[[OwnStoresDeployment, Partners], Awaitable[None]]
# One that needs no PostgreSQL of its own.
ProxiedFault = Callable[[ProxiedDeployment, Partners], Awaitable[None]]


@contextlib.contextmanager
def proxied_deployment(
    folder: Path, config: pytest.Config, *, autovacuum: str = "off", **variables: str
) -> Iterator[OwnStoresDeployment]:
    """Run a deployment. The server is not a superuser of the database."""
    with contextlib.ExitStack() as running:
        valkey = running.enter_context(own_valkey(config))
        cluster = running.enter_context(own_cluster(config, autovacuum=autovacuum))
        administrators_url = cluster.fresh_database()
        name = administrators_url.rpartition("/")[2]
        cluster.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'")
        cluster.execute(f'ALTER DATABASE "{name}" OWNER TO {ROLE}')
        url = f"postgresql://{ROLE}:x@127.0.0.1:{cluster.port}/{name}"
        to_database, to_limits = running.enter_context(Proxy(url)), running.enter_context(Proxy(valkey.url))
        deployment = running.enter_context(
            deployed(folder, url, to_database.url(url), to_limits.url(valkey.url), **variables)
        )
        yield OwnStoresDeployment(deployment, to_database, to_limits, valkey, cluster)


@contextlib.contextmanager
def own_valkey(config: pytest.Config) -> Iterator[limit_stores.Valkey]:
    """Start a limit store."""
    with needed(config, "on a limit store of their own"), limit_stores.Valkey() as valkey:
        yield valkey


# PostgreSQL


async def crash_postgresql(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Kill it by SIGKILL, and restart it later."""
    await asyncio.to_thread(proxied.cluster.kill)
    await partners.wait_for_refusals(20)
    await asyncio.to_thread(proxied.cluster.start)


async def restart_postgresql(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Restart it twice. The operator does not wait for open transactions."""
    for _ in range(2):
        await asyncio.to_thread(proxied.cluster.stop)
        await asyncio.to_thread(proxied.cluster.start)
        await partners.wait_for_successes(1)


async def cut_postgresql_off(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Cut it off for a while, and then for moments."""
    proxied.to_database.cut()
    await partners.wait_for_refusals(20)
    proxied.to_database.mend()
    for _ in range(4):
        await partners.wait_for_successes(1)
        proxied.to_database.cut()
        proxied.to_database.mend()


async def freeze_postgresql(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Suspend its processes: connections stay open, and nothing is answered."""
    with frozen(proxied.cluster):
        await partners.wait_for_refusals(8)  # each takes seconds


async def delay_postgresql(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Let each answer take 30 ms."""
    proxied.to_database.delay(0.03)
    await partners.wait_for_successes(TURNS)
    proxied.to_database.delay(0)


async def lose_answers_to_commits(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Lose the answer to every COMMIT, until each batch was sent again several times."""
    proxied.to_database.drop_answers_after(lambda sent: b"COMMIT\0" in sent)
    await partners.wait_for_successes(TURNS)
    proxied.to_database.drop_answers_after(None)


async def lose_answers_to_rotations(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Lose the answer to each rotation once: the server finds out what became of it."""
    await _lose_answers_to_rotations(proxied, partners, times=1)


async def lose_answers_to_rotations_twice(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Lose also the answer to the question what became of it: the outcome is unknown."""
    await _lose_answers_to_rotations(proxied, partners, times=2)


async def refuse_logins(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Refuse new connections, and end those that there are."""
    await _refuse(proxied, partners, "CONNECTION LIMIT 0", "CONNECTION LIMIT -1")


async def refuse_writes(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Let PostgreSQL only read, and end the connections that there are."""
    setting = "default_transaction_read_only"
    await _refuse(proxied, partners, f"SET {setting} = on", f"RESET {setting}")


async def time_statements_out(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Lock tables in another session, with a statement timeout of the database that is shorter than ours."""
    await proxied.execute(f"ALTER ROLE {ROLE} SET statement_timeout = '0.2s'")
    await proxied.execute(_TERMINATE)
    async with _session(proxied.deployment) as other:
        await other.execute("BEGIN; LOCK TABLE token_pairs, submissions IN ACCESS EXCLUSIVE MODE")
        await partners.wait_for_refusals(20)
    await proxied.execute(f"ALTER ROLE {ROLE} RESET statement_timeout")
    await proxied.execute(_TERMINATE)


async def lock_feeds(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Lock the rows of all feeds: writes are refused, and nothing else."""
    async with locked_feeds(proxied.deployment):
        await proxied.deployment.wait_for("feeds_hanging", lambda feeds: feeds > 0)
        await partners.wait_for_refusals(5)
    await proxied.deployment.wait_for("feeds_hanging", lambda feeds: feeds == 0)


async def delay_tokens(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Let each insert of tokens take 1.1 s."""
    async with slow_tokens(proxied.deployment):
        await partners.wait_for_successes(1)


async def fill_disk(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Let no page be added for a token or a batch, until there is space again."""
    database = services.PostgresqlServer(proxied.deployment.direct.database_url)
    await asyncio.to_thread(database.execute, "CREATE TABLE on_full_disk (one INTEGER)")
    try:
        await proxied.execute("CHECKPOINT")  # a later one could not sync what replaces the file
        await asyncio.to_thread(_replace_by_full_disk, proxied.cluster, database)
        await asyncio.to_thread(database.execute, _FILL_DISK)
        await partners.wait_for_refusals(20)
    finally:
        await asyncio.to_thread(database.execute, _STOP_FILLING)


# The limit store: each process counts alone


async def crash_limit_store(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Kill it by SIGKILL, and start it later, empty."""
    await asyncio.to_thread(proxied.valkey.kill)
    await assert_counting_alone(proxied.deployment, partners)
    await asyncio.to_thread(proxied.valkey.start)
    await wait_for_counting_alone(proxied.deployment, 0)


async def freeze_limit_store(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Suspend its process."""
    with frozen(proxied.valkey):
        await assert_counting_alone(proxied.deployment, partners)
    await wait_for_counting_alone(proxied.deployment, 0)


async def slow_limit_store(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Let it answer after 400 ms."""
    proxied.to_limits.delay(0.4)
    await assert_counting_alone(proxied.deployment, partners)
    proxied.to_limits.delay(0)
    await wait_for_counting_alone(proxied.deployment, 0)


async def cut_limit_store_off(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Cut it off."""
    proxied.to_limits.cut()
    await assert_counting_alone(proxied.deployment, partners)
    proxied.to_limits.mend()
    await wait_for_counting_alone(proxied.deployment, 0)


# Workers


async def kill_workers(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Kill one after the other by SIGKILL, each when the one before is replaced."""
    for victim in workers(proxied.deployment.server):
        with partners.seen.ending_workers():
            await _kill(victim, proxied.deployment, partners)
            await _wait_for_all_workers(proxied.deployment)
        await partners.wait_for_successes(1)


async def kill_worker_without_postgresql(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Kill one by SIGKILL while PostgreSQL is cut off: its successors end until PostgreSQL is back."""
    with partners.seen.ending_workers():
        proxied.to_database.cut()
        before = await asyncio.to_thread(proxied.deployment.metric, "workers_replaced_total")
        await _kill(workers(proxied.deployment.server)[0], proxied.deployment, partners)
        await proxied.deployment.wait_for("workers_replaced_total", lambda replaced: replaced > before + 1)
        proxied.to_database.mend()
        await _wait_for_all_workers(proxied.deployment)


async def freeze_worker(proxied: OwnStoresDeployment, partners: Partners) -> None:
    """Suspend one, with what it has begun, while the other answers."""
    frozen_worker = workers(proxied.deployment.server)[0]
    frozen_worker.suspend()
    try:
        goal = partners.seen.statuses.total() + 20
        await wait_until(lambda: partners.seen.statuses.total() >= goal, lambda: str(partners.seen.statuses))
    finally:
        frozen_worker.resume()
    await wait_for_counting_alone(proxied.deployment, 0)


FAULTS: tuple[Fault, ...] = (
    crash_postgresql,
    restart_postgresql,
    cut_postgresql_off,
    freeze_postgresql,
    delay_postgresql,
    lose_answers_to_commits,
    lose_answers_to_rotations,
    lose_answers_to_rotations_twice,
    refuse_logins,
    refuse_writes,
    time_statements_out,
    lock_feeds,
    delay_tokens,
    fill_disk,
    slow_limit_store,
    cut_limit_store_off,
    crash_limit_store,
    freeze_limit_store,
    freeze_worker,
)
ENDS_OF_WORKERS: tuple[Fault, ...] = (kill_workers, kill_worker_without_postgresql)


# Parts of faults


@contextlib.contextmanager
def frozen(program: ManagedProgram) -> Iterator[None]:
    """Suspend a program within this context."""
    program.freeze()
    try:
        yield
    finally:
        program.thaw()


@contextlib.asynccontextmanager
async def locked_feeds(deployment: DeploymentUnderLoad) -> AsyncIterator[None]:
    """Lock the rows of all feeds within this context."""
    async with _session(deployment) as other:
        await other.execute("BEGIN; SELECT * FROM feeds FOR UPDATE")
        yield


@contextlib.asynccontextmanager
async def slow_tokens(deployment: DeploymentUnderLoad) -> AsyncIterator[None]:
    """Let each insert of tokens take 1.1 s within this context."""
    async with _session(deployment) as other:
        try:
            await other.execute(_SLOW_INSERTS)
            yield
        finally:
            await other.execute("DROP FUNCTION IF EXISTS wait CASCADE")


async def wait_for_counting_alone(deployment: DeploymentUnderLoad, count: int) -> None:
    """Wait until so many workers count alone."""
    await deployment.wait_for("limit_store_lost", lambda lost: lost == count)


async def assert_counting_alone(deployment: DeploymentUnderLoad, partners: Partners) -> None:
    """Assert that all workers count alone, and that partners notice nothing."""
    await wait_for_counting_alone(deployment, WORKERS)
    await partners.wait_for_successes(TURNS)
    assert await asyncio.to_thread(deployment.metric, "limits_decided_alone_total") > 0


async def _refuse(proxied: OwnStoresDeployment, partners: Partners, setting: str, default: str) -> None:
    await proxied.execute(f"ALTER ROLE {ROLE} {setting}")
    await proxied.execute(_TERMINATE)
    await partners.wait_for_refusals(20)
    await proxied.execute(f"ALTER ROLE {ROLE} {default}")


async def _lose_answers_to_rotations(proxied: OwnStoresDeployment, partners: Partners, *, times: int) -> None:
    goal = proxied.to_database.dropped + 10
    proxied.to_database.drop_answers_after(_rotation_filter(partners, times))
    await wait_until(lambda: proxied.to_database.dropped >= goal, lambda: str(proxied.to_database.dropped))
    proxied.to_database.drop_answers_after(None)


def _rotation_filter(partners: Partners, times: int) -> Callable[[bytes], bool]:
    """Return a filter for rotations: of the statements that name a presented token, all after the first."""
    asked: Counter[bytes] = Counter()

    def is_rotation(sent: bytes) -> bool:
        for token_hash in tuple(partners.presented):
            if token_hash in sent:
                asked[token_hash] += 1
                return 1 < asked[token_hash] <= 1 + times
        return False

    return is_rotation


def _replace_by_full_disk(cluster: services.Cluster, database: services.PostgresqlServer) -> None:
    """Replace the empty file of the table, so that PostgreSQL cannot store its first page."""
    file = cluster.folder / "data" / database.value("SELECT pg_relation_filepath('on_full_disk')")
    file.unlink()
    file.symlink_to("/dev/full")


@contextlib.asynccontextmanager
async def _session(deployment: DeploymentUnderLoad) -> AsyncIterator[asyncpg.Connection]:
    """Open a session of another program, which ends whatever it has begun."""
    connection = await asyncpg.connect(deployment.direct.database_url)
    try:
        yield connection
    finally:
        await connection.close()


async def _kill(victim: psutil.Process, deployment: DeploymentUnderLoad, partners: Partners) -> None:
    """Kill a worker, and wait until its end is noticed."""
    before = await asyncio.to_thread(deployment.metric, "workers_replaced_total")
    partners.seen.note_worker_end()
    victim.kill()
    await deployment.wait_for("workers_replaced_total", lambda replaced: replaced > before)


async def _wait_for_all_workers(deployment: DeploymentUnderLoad) -> None:
    await deployment.wait_for("workers", lambda serving: serving == WORKERS)
