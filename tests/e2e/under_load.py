"""A deployment under load, and what must be so after something broke in it.

Source: docs/interface.md sections D1, D2, D6 and D8.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from stoplist.oauth.model import PERMISSIONS
from tests.builders import opened
from tests.e2e import load
from tests.e2e.at_work import Partners
from tests.e2e.conftest import postgresql_place
from tests.e2e.partners import Follower
from tests.e2e.running import PATIENCE_S, Key, Place, Server, reserved_address
from tests.e2e.stored import check_stored, check_tokens
from tests.server.serving import Connection

MANY = 1_000_000
FEW = 8
"""The ceiling of the program that asks too often."""
WORKERS = 2
POOL = 5
# So often every program must have what it asks for: before something breaks, and after it is whole again.
TURNS = 5

_organizations = (f"acme-{number}" for number in itertools.count(1))


class Deployment(NamedTuple):
    """A running server, and its database without what stands between."""

    server: Server
    direct: Place
    metrics: str

    def metric(self, name: str) -> float:
        """One number of all workers together."""
        text = httpx.get(f"http://{self.metrics}/metrics", timeout=PATIENCE_S, trust_env=False).text
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return next(sample.value for sample in samples if sample.name == f"stoplist_{name}")


@contextlib.contextmanager
def deployed(folder: Path, direct_url: str, url: str, limits_url: str, **variables: str) -> Iterator[Deployment]:
    """A server of two workers that reaches its stores at these addresses."""
    direct = postgresql_place(folder, direct_url)
    direct.ok("migrate")
    place = postgresql_place(folder, url, LIMITS_URL=limits_url, WORKERS=str(WORKERS), DATABASE_POOL=str(POOL))
    with reserved_address() as metrics, place.serving(METRICS_LISTEN=metrics, **variables) as server:
        yield Deployment(server, direct, metrics)


@contextlib.asynccontextmanager
async def under_load(deployment: Deployment) -> AsyncIterator[Partners]:
    """Partners are at work while something breaks in the block; afterwards all is as it must be."""
    organization = next(_organizations)
    key, hasty = await asyncio.to_thread(
        lambda: (
            deployment.direct.new_key(per_minute=MANY, may=frozenset(PERMISSIONS), organization=organization),
            deployment.direct.new_key(per_minute=FEW, organization=organization),
        )
    )
    alone_before = await asyncio.to_thread(deployment.metric, "limits_decided_alone_total")
    partners = Partners(deployment.server, workers=WORKERS, key=key, hasty=hasty)
    async with partners.at_work():
        await partners.each_had(TURNS)
        yield partners
        await partners.each_had(TURNS)
    await _all_is_answered(partners)
    await _follower_has_all(partners)
    # Each worker counts alone also where a busy machine lets the limit store answer too late for once.
    alone = await asyncio.to_thread(deployment.metric, "limits_decided_alone_total") - alone_before
    partners.assert_within(WORKERS * FEW if alone else FEW)
    async with opened(deployment.direct.database_url, pool_size=2) as database:
        await check_stored(database, partners.writers, organization=organization)
        await check_tokens(database, key.client_id, issued=partners.issued, rotations=partners.rotations)
    assert await asyncio.to_thread(deployment.metric, "reuse_alarms_total") == 0


async def _all_is_answered(partners: Partners) -> None:
    """By whichever worker, at the first attempt."""
    async with load.connections([partners.server], 4 * WORKERS) as lines:
        for line in lines:
            pair = await _issued(line, partners.key)
            partners.issued.append(pair)
            answer = await load.acquire(line, load.refresh(pair["refresh_token"]))
            assert answer.status == 200, answer
            partners.rotations[pair["refresh_token"]] = renewed = answer.json()
            for token in (pair["access_token"], renewed["access_token"]):
                assert (await load.acquire(line, load.call(token))).status == 404


async def _issued(line: Connection, key: Key) -> dict[str, Any]:
    """A pair; a connection that was made while nobody could write finds out by its first write that it must go."""
    answer = await load.acquire(line, load.issue(key))
    if answer.status == 503:
        answer = await load.acquire(line, load.issue(key))
    assert answer.status == 200, answer
    pair: dict[str, Any] = answer.json()
    return pair


async def _follower_has_all(partners: Partners) -> None:
    """Whoever followed through all of it has what the feed holds, and nothing else."""
    everything = Follower("email", 10_000)
    async with load.connection(partners.server) as line:
        token = partners.issued[-1]["access_token"]
        for follower in (partners.follower, everything):
            await follower.read_to_the_end(line, token)
    assert partners.follower.records == everything.records
