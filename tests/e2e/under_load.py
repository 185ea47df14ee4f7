"""A deployment under load, and the checks after something broke in it.

Source: docs/interface.md sections D1, D2, D6 and D8.
"""

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders import opened
from tests.conftest import needed
from tests.constants import HIGH_LIMIT
from tests.db import hosts
from tests.e2e import load
from tests.e2e.conftest import postgresql_installation, run_first
from tests.e2e.invariants import check_records, check_tokens
from tests.e2e.partner_programs import Pair, Partners
from tests.e2e.partners import Follower, PairHashes
from tests.e2e.server_process import Installation, RunningServer, metrics_page, reserved_address
from tests.keys import EVERY_PERMISSION, Key
from tests.server.serving import RawConnection
from tests.services import postgresql as services
from tests.services.managed_program import wait_until

FEW = 8
"""The limit of the hasty program."""
WORKERS = 2
POOL = 5
# Successes of every program before something breaks and after the recovery.
TURNS = 5

_organizations = (f"acme-{number}" for number in itertools.count(1))


class DeploymentUnderLoad(NamedTuple):
    """A running server, and direct access to its database."""

    server: RunningServer
    direct: Installation
    metrics: str

    def metrics_page(self) -> str:
        """Return the text of /metrics."""
        return metrics_page(self.metrics)

    def metric(self, name: str) -> float:
        """Return a metric, summed over all workers; NaN if it is not on the page."""
        families = text_string_to_metric_families(self.metrics_page())
        samples = (sample for family in families for sample in family.samples)
        return next((sample.value for sample in samples if sample.name == f"stoplist_{name}"), math.nan)

    async def wait_for(self, name: str, is_wanted: Callable[[float], bool]) -> None:
        """Wait until a metric has such a value."""
        await asyncio.to_thread(wait_until, lambda: is_wanted(self.metric(name)), name, every_s=0.05)


@contextlib.contextmanager
def deployed(
    folder: Path, direct_url: str, url: str, limits_url: str, *, first: str = "", **variables: str
) -> Iterator[DeploymentUnderLoad]:
    """Run a server of two workers with its stores at these URLs; each process runs the program `first` before."""
    direct = postgresql_installation(folder, direct_url)
    direct.ok("migrate")
    installation = postgresql_installation(
        folder, url, LIMITS_URL=limits_url, WORKERS=str(WORKERS), DATABASE_POOL=str(POOL)
    )
    run_first(first, installation)
    with reserved_address() as metrics, installation.serving(METRICS_LISTEN=metrics, **variables) as server:
        yield DeploymentUnderLoad(server, direct, metrics)


@contextlib.contextmanager
def own_cluster(config: pytest.Config, *, autovacuum: str = "off") -> Iterator[services.Cluster]:
    """Start a PostgreSQL, by default without autovacuum: statistics amid a short test would be left to chance."""
    with needed(config, "on a PostgreSQL of their own"), hosts.own_cluster(autovacuum=autovacuum) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def under_load(deployment: DeploymentUnderLoad) -> AsyncIterator[Partners]:
    """Run partners while something breaks within this context, and check everything afterwards."""
    organization = next(_organizations)
    key, hasty = await asyncio.to_thread(
        lambda: (
            deployment.direct.new_key(per_minute=HIGH_LIMIT, may=EVERY_PERMISSION, organization=organization),
            deployment.direct.new_key(per_minute=FEW, organization=organization),
        )
    )
    decided_alone_before = await asyncio.to_thread(deployment.metric, "limits_decided_alone_total")
    partners = Partners(deployment.server, workers=WORKERS, key=key, hasty=hasty)
    async with partners.run_programs():
        await partners.wait_for_successes(TURNS)
        yield partners
        await partners.wait_for_successes(TURNS)
    await _assert_all_answered(partners)
    await _assert_follower_has_all(partners)
    # A worker also counts alone if the limit store answers late once on a busy machine.
    decided_alone = await asyncio.to_thread(deployment.metric, "limits_decided_alone_total") - decided_alone_before
    partners.assert_limit_kept(FEW, have_counted_alone=decided_alone > 0)
    async with opened(deployment.direct.database_url, pool_size=2) as database:
        await check_records(database, partners.writers, organization=organization)
        await check_tokens(database, key.client_id, issued=partners.issued, rotations=partners.rotations)
    assert await asyncio.to_thread(deployment.metric, "reuse_alarms_total") == 0


async def _assert_all_answered(partners: Partners) -> None:
    """Assert that every worker answers at the first attempt."""
    async with load.connections([partners.server], 4 * WORKERS) as lines:
        for line in lines:
            pair = await _issue_pair(line, partners.key)
            partners.issued.append(PairHashes.of(pair))
            answer = await load.send_once(line, load.refresh(pair["refresh_token"]))
            assert answer.status == 200, answer
            renewed = answer.json()
            partners.rotations[PairHashes.of(pair).refresh] = PairHashes.of(renewed)
            for token in (pair["access_token"], renewed["access_token"]):
                assert (await load.send_once(line, load.call(token))).status == 404


async def _issue_pair(line: RawConnection, key: Key) -> Pair:
    """Request a pair. A connection from a read-only period may fail once before it is replaced."""
    answer = await load.send_once(line, load.issue(key))
    if answer.status == 503:
        answer = await load.send_once(line, load.issue(key))
    assert answer.status == 200, answer
    pair: Pair = answer.json()
    return pair


async def _assert_follower_has_all(partners: Partners) -> None:
    """Assert that the partners' follower has exactly the records of the feed."""
    everything = Follower("email", 10_000)
    async with load.connection(partners.server) as line:
        for follower in (partners.follower, everything):
            await follower.read_all(line, partners.token)
    assert partners.follower.records == everything.records
