"""The processor time of one request in each process. The capacity table of the operator guide is based on it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import asyncpg
import msgspec
import psutil
import redis

from bench.caller import Caller
from bench.load import run
from bench.sample_people import People, batch_body
from bench.scripts import Partner, Repeat, client_credentials
from bench.server import Server
from bench.verdict import Verdict, spread

_CONNECTIONS = 16
_DURATION_S = 3.0
_BATCH, _BATCHES = 10_000, 10
_PATH = "/api/v1/unsubscribe/email"

Progress = Callable[[str], None]


class UsedCpu(msgspec.Struct, frozen=True):
    """Processor seconds used so far."""

    server_s: float
    postgresql_s: float
    valkey_s: float


class PostgresqlTime:
    """Reads the processor time of all PostgreSQL processes together, including those that ended."""

    def __init__(self, database_url: str) -> None:
        self._postmaster = psutil.Process(asyncio.run(_postmaster(database_url)))

    def cpu_s(self) -> float:
        """Return the processor seconds used so far."""
        own = self._postmaster.cpu_times()
        # Running children are counted here; the postmaster counts those that ended.
        children = sum(_cpu_s(child) for child in self._postmaster.children())
        return own.user + own.system + own.children_user + own.children_system + children


class Meter:
    """Reads the processor time of the server and of both stores."""

    def __init__(self, server: Server, *, database_url: str, limits_url: str) -> None:
        self._server = server
        self._postgresql = PostgresqlTime(database_url)
        with redis.Redis.from_url(limits_url) as client:
            self._valkey = psutil.Process(int(client.info("server")["process_id"]))

    def used(self) -> UsedCpu:
        """Return the processor seconds used so far."""
        return UsedCpu(self._server.cpu_s(), self._postgresql.cpu_s(), _cpu_s(self._valkey))


def measure(
    meter: Meter, server: Server, partners: Sequence[Partner], look_ups: list[list[bytes]], progress: Progress
) -> Iterator[Verdict]:
    """Yield the verdicts on a look-up, a token request, and an item of a new batch of 10 000."""
    progress("measuring what a request costs")
    for work, scripts in (
        ("look-up", [Repeat(requests) for requests in look_ups[:_CONNECTIONS]]),
        ("token request", [Repeat([client_credentials(partners[n % len(partners)])]) for n in range(_CONNECTIONS)]),
    ):
        before = meter.used()
        seen = run(
            scripts,
            port=server.port,
            ca=server.ca,
            warm_up_s=0.0,
            duration_s=_DURATION_S,
            server_cpu_s=server.cpu_s,
        )
        yield _verdict(work, before, meter.used(), seen.requests)
    people = People("email", seed=91)
    bodies = [batch_body(people.acts(_BATCH)) for _ in range(_BATCHES)]
    with Caller(port=server.port, ca=server.ca, access_token=partners[0].access_tokens[0]) as caller:
        before = meter.used()
        for body in bodies:
            caller.post(_PATH, body, prefer="return=minimal")
        yield _verdict("new item of a batch of 10 000", before, meter.used(), _BATCH * _BATCHES)


def _verdict(work: str, before: UsedCpu, after: UsedCpu, count: int) -> Verdict:
    server_us, postgresql_us, valkey_us = (
        (late - early) / count * 1e6
        for late, early in zip(msgspec.structs.astuple(after), msgspec.structs.astuple(before), strict=True)
    )
    return Verdict(
        title=f"processor time of a {work}",
        figure=spread([server_us + postgresql_us + valkey_us]),
        unit="µs",
        target=None,
        detail=f"server {server_us:.0f}, PostgreSQL {postgresql_us:.0f}, Valkey {valkey_us:.0f} µs",
    )


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it has just ended, and its parent counts it
        return 0.0
    return float(times.user + times.system)


async def _postmaster(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        folder = str(await connection.fetchval("SHOW data_directory"))
    finally:
        await connection.close()
    return int((Path(folder) / "postmaster.pid").read_text().splitlines()[0])
