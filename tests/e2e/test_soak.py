"""`make soak`: an hour of mixed load at half of what the machine can, with random faults of the stores.

What a server holds stays flat: memory, open files, threads, connections to the database. No answer is a 500, and
nothing that was acknowledged is lost. Source: docs/interface.md sections D1, D2, D4, D6 and D8.
"""

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import pytest

from stoplist.db import pools
from tests.e2e.partner_programs import Partners
from tests.e2e.store_faults import FAULTS, ProxiedDeployment, proxied_deployment
from tests.e2e.under_load import TURNS, under_load
from tests.services.valkey import Valkey

DURATION_S = float(os.environ.get("TEST_SOAK_S", "0"))
_CONNECTIONS = "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = 'server'"
_BUSY_PERCENT = 50
_PACES_S = (0.001, 0.3)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(0),
    pytest.mark.skipif(not DURATION_S, reason="runs by `make soak` alone"),
]


class ServerResources(NamedTuple):
    """The memory and handles of the processes of a server at a calm moment."""

    memory_mib: float
    files: float
    threads: float
    connections: float


ALLOWED = ServerResources(memory_mib=0.1, files=0.1, threads=0.0, connections=0.1)
"""The growth between the second and the last third that caches and chance explain, as a part of what was held."""


def test_what_a_server_holds_stays_flat(
    tmp_path: Path, valkey: Valkey, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At the end this process reads millions of rows at once, which the server never does.
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", DURATION_S)
    with proxied_deployment(tmp_path, valkey, pytestconfig) as proxied:
        samples = asyncio.run(_soak(proxied))
    third = len(samples) // 3
    before, after = (_medians(part) for part in (samples[third : 2 * third], samples[2 * third :]))
    _report(f"{len(samples)} faults; held: {before}, then {after}")
    for name, was, now, allowed in zip(ServerResources._fields, before, after, ALLOWED, strict=True):
        assert now <= was * (1 + allowed), (name, samples)


async def _soak(proxied: ProxiedDeployment) -> list[ServerResources]:
    """Inject all faults in random order, again and again; return what was held after each."""
    seed = random.randrange(10**6)  # noqa: S311 - for repetition
    _report(f"TEST_SOAK_S={DURATION_S:.0f}, faults in the order of seed {seed}")
    chance = random.Random(seed)  # noqa: S311
    samples: list[ServerResources] = []
    end_s = time.monotonic() + DURATION_S
    psutil.cpu_percent()
    async with under_load(proxied.deployment) as partners:
        while time.monotonic() < end_s or len(samples) < 6:
            for fault in chance.sample(FAULTS, len(FAULTS)):
                await fault(proxied, partners)
                await partners.wait_for_successes(TURNS)
                samples.append(await asyncio.to_thread(_held, proxied))
                _adjust_pace(partners)
                _report(f"{fault.__name__}: {samples[-1]}, pace {partners.pace_s:.3f} s")
                if time.monotonic() > end_s and len(samples) >= 6:
                    break
    _report(f"answers: {dict(partners.seen.statuses)}, the slowest after {partners.seen.longest_s:.1f} s")
    return samples


def _held(proxied: ProxiedDeployment) -> ServerResources:
    supervisor = psutil.Process(proxied.deployment.server.process.pid)
    processes = [supervisor, *supervisor.children(recursive=True)]
    return ServerResources(
        round(sum(one.memory_info().rss for one in processes) / 2**20, 1),
        sum(one.num_fds() for one in processes),
        sum(one.num_threads() for one in processes),
        proxied.cluster.value(_CONNECTIONS),
    )


def _adjust_pace(partners: Partners) -> None:
    """Bring the machine nearer to half of what it can."""
    factor = 1.25 if psutil.cpu_percent() > _BUSY_PERCENT else 0.8
    least, most = _PACES_S
    partners.pace_s = min(most, max(least, partners.pace_s * factor))


def _medians(samples: list[ServerResources]) -> ServerResources:
    return ServerResources(*(median(column) for column in zip(*samples, strict=True)))


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
