"""Each fault of a server of two workers under load raises its alarms, and no others.

The metrics are read from the real server before, during and after the fault, and evaluated by Prometheus' own tool as
if the fault had lasted for a quarter of an hour. Faults of the application alone are in tests/web/test_alarms.py.
Source: docs/operate.md, Alarms.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ruamel.yaml import YAML

from tests.constants import HIGH_LIMIT
from tests.deployment import in_own_loop
from tests.e2e import load
from tests.e2e.conftest import own_limits_url
from tests.e2e.faults import locked_feeds, slow_tokens
from tests.e2e.partner_programs import Partners
from tests.e2e.server_process import workers
from tests.e2e.under_load import TURNS, WORKERS, DeploymentUnderLoad, deployed, own_cluster, under_load
from tests.keys import Key
from tests.server.serving import RawConnection
from tests.services import postgresql as services
from tests.services.managed_program import reserve_port
from tests.services.promtool import RULES, Phase, Promtool, metric_names
from tests.services.proxy import Proxy
from tests.services.valkey import Valkey
from tests.time_limits import LONG_LIMIT_STORE, LONG_METRICS, LONG_READS, LONG_STATEMENTS, setting_constants

pytestmark = pytest.mark.slow

LASTS_MIN, SLOW_MIN, NOTICES_MIN, AFTERWARDS_MIN = 15, 20, 80, 130
SLOW_REQUESTS, SLOW_LINES = 100, 10
# One late answer on a busy machine would be repeated for as long as the fault. A feed hangs by the wait for its lock.
LONG = LONG_STATEMENTS | LONG_READS | LONG_LIMIT_STORE | LONG_METRICS
# Propagation is otherwise measured once a minute.
FREQUENT_CHORES = """
    from stoplist import chores
    table = chores.chores
    chores.chores = lambda **parts: [chore._replace(every_s=min(chore.every_s, 2)) for chore in table(**parts)]
"""
NOTICE_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Watched(NamedTuple):
    """A deployment, its stores, and the alarms that were seen."""

    deployment: DeploymentUnderLoad
    cluster: services.Cluster
    to_limits: Proxy
    promtool: Promtool

    async def wait_for(self, name: str, is_wanted: Callable[[float], bool]) -> str:
        """Wait until a metric has such a value, and return the page."""
        await self.deployment.wait_for(name, is_wanted)
        return await asyncio.to_thread(self.deployment.metrics_page)

    @contextlib.asynccontextmanager
    async def raising(self, name: str, *alarms: str) -> AsyncIterator["RecordedFault"]:
        """Assert that these alarms fire during the fault within this context, none before, and none afterwards."""
        fault = RecordedFault(await asyncio.to_thread(self.deployment.metrics_page))
        yield fault
        after = await self.wait_for("store_lost", lambda lost: lost == 0)
        phases = [
            Phase(fault.before, 10),
            Phase(fault.during, fault.minutes, frozenset(alarms)),
            Phase(after, 10, None),
            Phase(after, AFTERWARDS_MIN),
        ]
        await asyncio.to_thread(self.promtool.assert_alarms, {name: phases}, now_s=time.time())


class RecordedFault:
    """The pages before a fault and at its end, and for how long to repeat it."""

    def __init__(self, before: str) -> None:
        self.before, self.during, self.minutes = before, "", LASTS_MIN


@contextlib.contextmanager
def watching(folder: Path, valkey: Valkey, promtool: Promtool, pytestconfig: pytest.Config) -> Iterator[Watched]:
    """Run a deployment. Nobody receives its notices."""
    with contextlib.ExitStack() as running:
        cluster = running.enter_context(own_cluster(pytestconfig))
        url, limits_url = cluster.fresh_database(), own_limits_url(valkey)
        to_limits = running.enter_context(Proxy(limits_url))
        port = running.enter_context(reserve_port()).getsockname()[1]
        deployment = running.enter_context(
            deployed(
                folder,
                url,
                url,
                to_limits.url(limits_url),
                first=setting_constants(LONG) + FREQUENT_CHORES,
                # Every slow request has a connection of its own, whichever worker serves it.
                DATABASE_POOL=str(2 * SLOW_LINES),
                NOTICE_URL=f"https://localhost:{port}/in",
                NOTICE_SECRET=NOTICE_SECRET,
                NOTICE_ALLOW_PRIVATE="yes",
            )
        )
        yield Watched(deployment, cluster, to_limits, promtool)


@pytest.fixture(scope="module")
def _watched(
    tmp_path_factory: pytest.TempPathFactory, valkey: Valkey, promtool: Promtool, pytestconfig: pytest.Config
) -> Iterator[Watched]:
    with watching(tmp_path_factory.mktemp("watched"), valkey, promtool, pytestconfig) as deployment:
        yield deployment


@pytest.fixture
def watched(_watched: Watched) -> Iterator[Watched]:
    """Return the deployment that the tests share. Its stores serve again afterwards, also if the test fails."""
    yield _watched
    _watched.to_limits.mend()
    if not _watched.cluster.is_running:
        _watched.cluster.start()


def run_under_load(watched: Watched, body: Callable[[Partners], Awaitable[None]]) -> None:
    async def main() -> None:
        async with under_load(watched.deployment) as partners:
            await body(partners)

    asyncio.run(main())


def test_load_alone_raises_no_alarm(watched: Watched) -> None:
    """The page of two workers has every metric that a rule names, except those of SQLite's backups and feeds apart."""

    async def body() -> None:
        async with watched.raising("load") as load_alone:
            async with under_load(watched.deployment) as partners:
                await partners.wait_for_successes(5 * TURNS)
            load_alone.during = await watched.wait_for("propagation_oldest_seconds", lambda age: age >= 0)

    asyncio.run(body())
    groups = YAML(typ="safe").load(RULES)["groups"]
    named = {
        name for group in groups for rule in group["rules"] for name in re.findall(r"\bstoplist_\w+", rule["expr"])
    }
    missing = named - metric_names(watched.deployment.metrics_page())
    assert missing == {"stoplist_backup_seconds", "stoplist_outbox_oldest_seconds"}


def test_a_database_that_is_away(watched: Watched) -> None:
    async def body(partners: Partners) -> None:
        async with watched.raising("database", "StoplistNotReady", "StoplistStoreErrors") as fault:
            await asyncio.to_thread(watched.cluster.stop)
            await partners.wait_for_refusals(20)
            fault.during = await watched.wait_for("store_lost", lambda lost: lost == WORKERS)
            await asyncio.to_thread(watched.cluster.start)
            await partners.wait_for_successes(TURNS)

    run_under_load(watched, body)


def test_a_limit_store_that_is_away(watched: Watched) -> None:
    async def body(partners: Partners) -> None:
        async with watched.raising("limits", "StoplistLimitsAlone") as fault:
            watched.to_limits.cut()
            fault.during = await watched.wait_for("limit_store_lost", lambda lost: lost == WORKERS)
            watched.to_limits.mend()
            await watched.wait_for("limit_store_lost", lambda lost: lost == 0)

    run_under_load(watched, body)


@in_own_loop
async def test_a_worker_that_dies(watched: Watched) -> None:
    async with watched.raising("worker", "StoplistWorkerDied") as fault:
        before = watched.deployment.metric("workers_replaced_total")
        workers(watched.deployment.server)[0].kill()
        await watched.wait_for("workers_replaced_total", lambda replaced: replaced == before + 1)
        fault.during = await watched.wait_for("workers", lambda serving: serving == WORKERS)


@in_own_loop
async def test_a_worker_that_cannot_be_replaced(watched: Watched) -> None:
    """Because the database is away."""
    alarms = ("StoplistWorkerDied", "StoplistWorkersMissing", "StoplistNotReady")
    async with watched.raising("no worker", *alarms) as fault:
        await asyncio.to_thread(watched.cluster.stop)
        before = watched.deployment.metric("workers_replaced_total")
        workers(watched.deployment.server)[0].kill()
        await watched.wait_for("workers_replaced_total", lambda replaced: replaced > before + 1)
        fault.during = await watched.wait_for("store_lost", lambda lost: lost == 1)
        await asyncio.to_thread(watched.cluster.start)
        await watched.wait_for("workers", lambda serving: serving == WORKERS)


def test_a_feed_that_hangs(watched: Watched) -> None:
    """Another session holds its row: its writes are refused, and nothing else."""

    async def body(partners: Partners) -> None:
        async with watched.raising("feed", "StoplistFeedHangs", "StoplistStoreErrors") as fault:
            async with locked_feeds(watched.deployment):
                fault.during = await watched.wait_for("feeds_hanging", lambda feeds: feeds > 0)
            await watched.wait_for("feeds_hanging", lambda feeds: feeds == 0)
            await partners.wait_for_successes(TURNS)

    run_under_load(watched, body)


def test_a_database_that_is_slow(watched: Watched) -> None:
    """Each token is stored late, and no request fails."""
    key = watched.deployment.direct.new_key(per_minute=HIGH_LIMIT, organization="slow")

    async def ask(line: RawConnection) -> None:
        for _ in range(SLOW_REQUESTS // SLOW_LINES):
            assert (await load.send_once(line, load.issue(key))).status == 200

    async def body() -> None:
        async with (
            load.connections([watched.deployment.server], SLOW_LINES) as lines,
            watched.raising("slow", "StoplistSlow") as fault,
        ):
            async with slow_tokens(watched.deployment):
                await asyncio.gather(*map(ask, lines))
            fault.during, fault.minutes = await asyncio.to_thread(watched.deployment.metrics_page), SLOW_MIN

    asyncio.run(body())


def test_a_stolen_token_whose_notice_does_not_arrive(
    tmp_path: Path, valkey: Valkey, promtool: Promtool, pytestconfig: pytest.Config
) -> None:
    """And then the server is gone."""
    with watching(tmp_path, valkey, promtool, pytestconfig) as watched:
        key = watched.deployment.direct.new_key(per_minute=HIGH_LIMIT, organization="stolen")
        before = watched.deployment.metrics_page()
        asyncio.run(present_twice(watched, key))
        during = asyncio.run(watched.wait_for("notice_failures_total", lambda failures: failures > 0))
        watched.deployment.server.kill()
    alarms = frozenset(("StoplistTokenReuse", "StoplistNoticesFail"))
    # Those of the last hours stay when the server is gone.
    phases = [Phase(before, 10), Phase(during, NOTICES_MIN, alarms), Phase(None, 10, alarms | {"StoplistNotReady"})]
    promtool.assert_alarms({"stolen": phases}, now_s=time.time())


async def present_twice(watched: Watched, key: Key) -> None:
    async with load.connection(watched.deployment.server) as line:
        pair = (await load.send_once(line, load.issue(key))).json()
        answers = [await load.send_once(line, load.refresh(pair["refresh_token"])) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 400]
