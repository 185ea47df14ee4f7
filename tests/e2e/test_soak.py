"""`make soak`: an hour of mixed load at half of what the machine can, with random faults of stores and workers.

What a server holds stays flat: memory, open files, threads, connections to the database. No answer is a 500, and
nothing that was acknowledged is lost. Source: docs/interface.md sections D1, D2, D4, D6 and D8.

A worker that has just started holds less, and holds more with every minute, which would look like a leak or hide one.
So workers are killed in the first quarter alone. Growth is judged between the second third and the last, in which the
same processes run.
"""

import asyncio
import os
import random
import resource
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import pytest

from stoplist.db import pools
from tests.e2e.faults import ENDS_OF_WORKERS, FAULTS, OwnStoresDeployment, proxied_deployment
from tests.e2e.partner_programs import Partners
from tests.e2e.server_process import processes
from tests.e2e.under_load import TURNS, under_load

DURATION_S = float(os.environ.get("TEST_SOAK_S", "0"))
_CONNECTIONS = "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = 'server'"
_BUSY_PERCENT = 50
_PACES_S = (0.001, 0.3)
_LOG_LINES = 10_000

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
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At the end the database counts millions of rows at once, which it never does for the server.
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", DURATION_S)
    # Without autovacuum, what changes again and again would become slower and slower.
    with proxied_deployment(tmp_path, pytestconfig, autovacuum="on") as proxied:
        proxied.deployment.server.log.keep_last(_LOG_LINES)
        samples = asyncio.run(_soak(proxied))
    half = len(samples) // 2
    before, after = (_medians(part) for part in (samples[:half], samples[half:]))
    _report(f"{len(samples)} faults after the first third; held: {before}, then {after}")
    for name, was, now, allowed in zip(ServerResources._fields, before, after, ALLOWED, strict=True):
        assert now <= was * (1 + allowed), (name, samples)


async def _soak(proxied: OwnStoresDeployment) -> list[ServerResources]:
    """Inject all faults in random order, again and again; return what was held after each, from the second third on."""
    seed = random.randrange(10**6)  # noqa: S311 - for repetition
    _report(f"TEST_SOAK_S={DURATION_S:.0f}, faults in the order of seed {seed}")
    chance = random.Random(seed)  # noqa: S311
    samples: list[ServerResources] = []
    running: set[frozenset[int]] = set()
    begin_s = time.monotonic()
    psutil.cpu_percent()
    async with under_load(proxied.deployment) as partners:
        while (elapsed_s := time.monotonic() - begin_s) < DURATION_S:
            faults = FAULTS + (ENDS_OF_WORKERS if elapsed_s < DURATION_S / 4 else ())
            for fault in chance.sample(faults, len(faults)):
                if fault in ENDS_OF_WORKERS and time.monotonic() - begin_s > DURATION_S / 4:
                    continue
                began_s = time.monotonic()
                await fault(proxied, partners)
                await partners.wait_for_successes(TURNS)
                took_s = time.monotonic() - began_s
                held = await asyncio.to_thread(_held, proxied)
                if time.monotonic() - begin_s > DURATION_S / 3:
                    samples.append(held)
                    running.add(frozenset(one.pid for one in processes(proxied.deployment.server)))
                _adjust_pace(partners)
                _report(f"{fault.__name__}: {took_s:.1f} s, {held}, pace {partners.pace_s:.3f} s")
    assert len(samples) >= len(FAULTS), "give it more time"
    assert len(running) == 1, "no worker ended that was not killed"
    _report(f"answers: {dict(partners.seen.statuses)}, the slowest after {partners.seen.longest_s:.1f} s")
    own_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    _report(f"{len(partners.issued)} tokens issued; this process held at most {own_mib:.0f} MiB")
    return samples


def _held(proxied: OwnStoresDeployment) -> ServerResources:
    running = processes(proxied.deployment.server)
    return ServerResources(
        round(sum(one.memory_info().rss for one in running) / 2**20, 1),
        sum(one.num_fds() for one in running),
        sum(one.num_threads() for one in running),
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
