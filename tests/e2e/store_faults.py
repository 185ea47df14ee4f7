"""Faults of the stores under a server of two workers: each breaks something for a while, and is over on return."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from tests.constants import PATIENCE_S
from tests.e2e.conftest import own_limits_url
from tests.e2e.partner_programs import Partners
from tests.e2e.under_load import TURNS, WORKERS, DeploymentUnderLoad, deployed, own_cluster
from tests.services import postgresql as services
from tests.services.proxy import Proxy
from tests.services.valkey import Valkey

ROLE = "server"
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'server'"


class ProxiedDeployment(NamedTuple):
    """A deployment with network proxies before its stores; its PostgreSQL belongs to the test."""

    deployment: DeploymentUnderLoad
    cluster: services.Cluster
    to_database: Proxy
    to_limits: Proxy

    async def execute(self, statement: str) -> None:
        """Run a statement as the administrator of the database."""
        await asyncio.to_thread(self.cluster.execute, statement)

    def repair(self) -> None:
        """End what a fault that was interrupted left behind."""
        for default in ("CONNECTION LIMIT -1", "RESET ALL"):
            self.cluster.execute(f"ALTER ROLE {ROLE} {default}")
        for between in (self.to_database, self.to_limits):
            between.drop_answers_after(None)
            between.delay(0)
            between.mend()


@contextlib.contextmanager
def proxied_deployment(
    folder: Path, valkey: Valkey, config: pytest.Config, **variables: str
) -> Iterator[ProxiedDeployment]:
    """Run a deployment. The server is not a superuser of the database."""
    with contextlib.ExitStack() as running:
        cluster = running.enter_context(own_cluster(config))
        administrators_url = cluster.fresh_database()
        name = administrators_url.rpartition("/")[2]
        cluster.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'")
        cluster.execute(f'ALTER DATABASE "{name}" OWNER TO {ROLE}')
        url = f"postgresql://{ROLE}:x@127.0.0.1:{cluster.port}/{name}"
        limits_url = own_limits_url(valkey)
        to_database, to_limits = running.enter_context(Proxy(url)), running.enter_context(Proxy(limits_url))
        deployment = running.enter_context(
            deployed(folder, url, to_database.url(url), to_limits.url(limits_url), **variables)
        )
        yield ProxiedDeployment(deployment, cluster, to_database, to_limits)


async def crash_postgresql(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Kill it by SIGKILL, and restart it later."""
    await asyncio.to_thread(proxied.cluster.kill)
    await partners.wait_for_refusals(20)
    await asyncio.to_thread(proxied.cluster.start)


async def restart_postgresql(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Restart it twice. The operator does not wait for open transactions."""
    for _ in range(2):
        await asyncio.to_thread(proxied.cluster.stop)
        await asyncio.to_thread(proxied.cluster.start)
        await partners.wait_for_successes(1)


async def cut_postgresql_off(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Cut it off for a while, and then for moments."""
    proxied.to_database.cut()
    await partners.wait_for_refusals(20)
    proxied.to_database.mend()
    for _ in range(4):
        await partners.wait_for_successes(1)
        proxied.to_database.cut()
        proxied.to_database.mend()


async def delay_postgresql(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Let each answer take 30 ms."""
    proxied.to_database.delay(0.03)
    await partners.wait_for_successes(TURNS)
    proxied.to_database.delay(0)


async def lose_answers_to_commits(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Lose the answer to every COMMIT, until each batch was sent again several times."""
    proxied.to_database.drop_answers_after(lambda sent: b"COMMIT\0" in sent)
    await partners.wait_for_successes(TURNS)
    proxied.to_database.drop_answers_after(None)


async def refuse_logins(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Refuse new connections, and end those that there are."""
    await _refuse(proxied, partners, "CONNECTION LIMIT 0", "CONNECTION LIMIT -1")


async def refuse_writes(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Let PostgreSQL only read, and end the connections that there are."""
    setting = "default_transaction_read_only"
    await _refuse(proxied, partners, f"SET {setting} = on", f"RESET {setting}")


async def time_statements_out(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Lock tables in another session, with a statement timeout of the database that is shorter than ours."""
    await proxied.execute(f"ALTER ROLE {ROLE} SET statement_timeout = '0.2s'")
    await proxied.execute(_TERMINATE)
    other = await asyncpg.connect(proxied.deployment.direct.database_url)
    await other.execute("BEGIN; LOCK TABLE token_pairs, submissions IN ACCESS EXCLUSIVE MODE")
    await partners.wait_for_refusals(20)
    await other.close()
    await proxied.execute(f"ALTER ROLE {ROLE} RESET statement_timeout")
    await proxied.execute(_TERMINATE)


async def slow_limit_store(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Let it answer after 400 ms: each process counts alone."""
    proxied.to_limits.delay(0.4)
    await assert_counting_alone(proxied.deployment, partners)
    proxied.to_limits.delay(0)
    await wait_for_counting_alone(proxied.deployment, 0)


async def cut_limit_store_off(proxied: ProxiedDeployment, partners: Partners) -> None:
    """Cut it off: each process counts alone."""
    proxied.to_limits.cut()
    await assert_counting_alone(proxied.deployment, partners)
    proxied.to_limits.mend()
    await wait_for_counting_alone(proxied.deployment, 0)


Fault = Callable[[ProxiedDeployment, Partners], Awaitable[None]]

FAULTS: tuple[Fault, ...] = (
    crash_postgresql,
    restart_postgresql,
    cut_postgresql_off,
    delay_postgresql,
    lose_answers_to_commits,
    refuse_logins,
    refuse_writes,
    time_statements_out,
    slow_limit_store,
    cut_limit_store_off,
)


async def wait_for_counting_alone(deployment: DeploymentUnderLoad, workers: int) -> None:
    """Wait until so many workers count alone."""
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(deployment.metric, "limit_store_lost") != workers:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def assert_counting_alone(deployment: DeploymentUnderLoad, partners: Partners) -> None:
    """Assert that all workers count alone, and that partners notice nothing."""
    await wait_for_counting_alone(deployment, WORKERS)
    await partners.wait_for_successes(TURNS)
    assert await asyncio.to_thread(deployment.metric, "limits_decided_alone_total") > 0


async def _refuse(proxied: ProxiedDeployment, partners: Partners, setting: str, default: str) -> None:
    await proxied.execute(f"ALTER ROLE {ROLE} {setting}")
    await proxied.execute(_TERMINATE)
    await partners.wait_for_refusals(20)
    await proxied.execute(f"ALTER ROLE {ROLE} {default}")
