"""Scale-out on PostgreSQL and Valkey: bare handlers with the same round trips, workers, hot feeds, the limiter."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import redis.asyncio as redis
import uvloop

from bench import cpu_costs, postgresql, product, rounds
from bench.load import Load, run
from bench.product import Deployment
from bench.rounds import Pace, Workload
from bench.sample_people import People, batch_body
from bench.scripts import Partner, RefreshChain, Repeat, client_credentials, get, post
from bench.server import BenchError, Server, free_port, send_once
from bench.verdict import Target, Verdict, round_ratios, spread
from stoplist.clock import Clock
from stoplist.limits.shared import SharedLimiter
from stoplist.limits.store import SCRIPT, LimitStore
from tests.services import valkey

_REPOSITORY = Path(__file__).parent.parent
_CONNECTIONS = 32
_WRITERS, _BATCH, _BATCHES_A_WRITER, _WRITING_S = 32, 200, 30, 3.0
_CALLS = 6_400
_PATH = "/api/v1/unsubscribe/email"
_CHANNELS = ("email", "sms", "phone")
_ONE, _TWO, _BARE = "1 worker", "2 workers", "bare handler"

Progress = Callable[[str], None]


class _Stores(msgspec.Struct, frozen=True):
    """The addresses of the two stores."""

    settings: dict[str, str]

    @property
    def database_url(self) -> str:
        return self.settings["STOPLIST_DATABASE_URL"]

    @property
    def limits_url(self) -> str:
        return self.settings["STOPLIST_LIMITS_URL"]


def measure(pace: Pace, scratch: Path, progress: Progress) -> list[Verdict]:
    """Return the verdicts on a deployment on a temporary PostgreSQL and Valkey."""
    with ExitStack() as running:
        stores = _open_stores(running)
        deployment = Deployment(scratch / "scale", stores.settings)
        deployment.folder.mkdir()
        deployment.run("migrate")
        with deployment.server() as server:
            partners = product.with_tokens(product.make_partners(deployment), server)
        return [
            *_against_bare(pace, deployment, partners, stores, progress),
            *_costs(deployment, partners, stores, progress),
            *_hot_feeds(pace, deployment, progress),
            *_limiter(pace, stores, progress),
        ]


def _open_stores(running: ExitStack) -> _Stores:
    settings = dict(running.enter_context(postgresql.settings()))
    try:
        settings["STOPLIST_LIMITS_URL"] = running.enter_context(valkey.valkey()).url
    except valkey.Unavailable as error:
        raise BenchError(str(error)) from error
    return _Stores(settings)


def _against_bare(
    pace: Pace, deployment: Deployment, partners: list[Partner], stores: _Stores, progress: Progress
) -> Iterator[Verdict]:
    with ExitStack() as running:
        servers = {
            _ONE: running.enter_context(deployment.server()),
            _TWO: running.enter_context(deployment.server("--workers", "2")),
        }
        look_ups = _look_ups(partners)
        sizes = [
            len(send_once(request, port=servers[_ONE].port, ca=servers[_ONE].ca).body)
            for request in (look_ups[0][0], client_credentials(partners[0]))
        ]
        servers[_BARE] = running.enter_context(_bare_server(deployment, stores, *sizes))
        seen = rounds.run(_workloads(partners, look_ups, servers), pace, progress=progress, after_round=lambda: None)
    for loads in seen.values():
        if failures := [one.first_failure for one in loads if one.failures]:
            raise BenchError(f"a request got a wrong answer: {failures[0]}")
    for work, share in (("look-up", 0.6), ("client_credentials", 0.7), ("refresh chain", 0.7)):
        yield Verdict(
            title=f"{work} (PostgreSQL and Valkey)",
            figure=round_ratios(seen[work, _ONE], seen[work, _BARE]),
            unit="%",
            target=Target(share, at_least=True),
            detail=f"{_rate(seen[work, _ONE])} of a bare handler with the same round trips {_rate(seen[work, _BARE])}",
        )
        yield _more_workers(work, seen[work, _ONE], seen[work, _TWO])


def _costs(deployment: Deployment, partners: list[Partner], stores: _Stores, progress: Progress) -> list[Verdict]:
    with deployment.server() as server:
        meter = cpu_costs.Meter(server, database_url=stores.database_url, limits_url=stores.limits_url)
        return list(cpu_costs.measure(meter, server, partners, _look_ups(partners), progress))


def _more_workers(work: str, one: Sequence[Load], two: Sequence[Load]) -> Verdict:
    """Compare processor times, because the rate depends on the cores that client and database leave free."""
    return Verdict(
        title=f"{work}: server time a request with 2 workers against 1",
        figure=spread([more.server_cpu_us / less.server_cpu_us for more, less in zip(two, one, strict=True)]),
        unit="x",
        target=Target(1.1, at_least=False),
        detail=f"{_cpu(two)}, {_rate(two)}; {_cpu(one)}, {_rate(one)}",
    )


def _look_ups(partners: Sequence[Partner]) -> list[list[bytes]]:
    """Return the look-ups of each connection, with different addresses and tokens."""
    people = People("email", seed=3)
    return [
        [
            get(f"{_PATH}?address={people.acts(1)[0].address}", token)
            for token in partners[number % len(partners)].access_tokens[number // len(partners) :: 8]
        ]
        for number in range(_CONNECTIONS)
    ]


def _workloads(
    partners: Sequence[Partner], look_ups: list[list[bytes]], servers: dict[str, Server]
) -> Iterator[Workload]:
    scripts: dict[str, Callable[[int], Repeat | RefreshChain]] = {
        "look-up": lambda number: Repeat(look_ups[number]),
        "client_credentials": lambda number: Repeat([client_credentials(partners[number % len(partners)])]),
        "refresh chain": lambda number: RefreshChain(partners[number % len(partners)]),
    }
    for work, script in scripts.items():
        for subject, server in servers.items():
            yield Workload(work=work, subject=subject, server=server, connections=_CONNECTIONS, script=script)


def _bare_server(deployment: Deployment, stores: _Stores, body_bytes: int, token_bytes: int) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "bench.bare_stores", "--port", str(port)]
    command += ["--cert", str(deployment.certificate), "--key", str(deployment.certificate_key)]
    command += ["--body-bytes", str(body_bytes), "--token-bytes", str(token_bytes)]
    environ = os.environ | {"BENCH_DATABASE_URL": stores.database_url, "BENCH_LIMITS_URL": stores.limits_url}
    log = deployment.folder.with_name("bare-stores.log")
    return Server(command, port=port, ca=deployment.ca, folder=_REPOSITORY, environ=environ, log=log)


def _hot_feeds(pace: Pace, deployment: Deployment, progress: Progress) -> Iterator[Verdict]:
    """Yield the verdicts on the same batches by the same writers: all into one feed, and each into its own."""
    one_s: list[Load] = []
    many_s: list[Load] = []
    with deployment.server() as server:
        feeds = list(_feeds(deployment, server, _WRITERS))
        for number in range(pace.rounds):
            for loads, targets in ((one_s, feeds[:1] * _WRITERS), (many_s, feeds)):
                loads.append(_write_load(server, targets, seed=number * 1_000 + len(many_s)))
            progress(
                f"round {number + 1}/{pace.rounds}  {_WRITERS} writers: "
                f"one feed {_rate(one_s)}, each its own {_rate(many_s)}"
            )
    yield Verdict(
        title=f"{_WRITERS} feeds with one writer each against one feed with {_WRITERS}",
        figure=round_ratios(many_s, one_s),
        unit="x",
        target=Target(1.0, at_least=True),
        detail=f"batches of {_BATCH} new items: {_rate(many_s)}, {_rate(one_s)}",
    )
    yield Verdict(
        title="the longest of those POSTs",
        figure=spread([load.longest_ms / 1000 for load in (*one_s, *many_s)]),
        unit="s",
        target=Target(5.0, at_least=False),
        detail=f"p99 {spread([load.p99_ms for load in one_s]).median:.0f} ms into one feed, "
        f"{spread([load.p99_ms for load in many_s]).median:.0f} ms into {_WRITERS}",
    )


def _feeds(deployment: Deployment, server: Server, count: int) -> Iterator[tuple[str, str]]:
    """Yield the channel and access token of `count` feeds."""
    for number in range(-(-count // len(_CHANNELS))):
        partner = product.make_partner(deployment, f"feed-{number}")
        token = product.with_tokens([partner], server, count=1)[0].access_tokens[0]
        for channel in _CHANNELS[: count - number * len(_CHANNELS)]:
            yield channel, token


def _write_load(server: Server, feeds: Sequence[tuple[str, str]], *, seed: int) -> Load:
    scripts = []
    for number, (channel, token) in enumerate(feeds):
        people = People(channel, seed=seed + number)
        bodies = [batch_body(people.acts(_BATCH)) for _ in range(_BATCHES_A_WRITER)]
        scripts.append(Repeat([post(f"/api/v1/unsubscribe/{channel}", token, body) for body in bodies]))
    seen = run(scripts, port=server.port, ca=server.ca, warm_up_s=0.2, duration_s=_WRITING_S, server_cpu_s=server.cpu_s)
    if seen.failures:
        raise BenchError(f"a batch was answered wrongly: {seen.first_failure}")
    if seen.requests > len(feeds) * _BATCHES_A_WRITER * 0.9:
        raise BenchError("the batches of the hot feeds ran out: prepare more of them")
    return seen


def _limiter(pace: Pace, stores: _Stores, progress: Progress) -> Iterator[Verdict]:
    """Yield the verdicts on decisions of the limiter, against bare calls of its script through the same client."""
    progress("asking the limiter, and its script alone")
    for concurrency in (1, _CONNECTIONS):
        shared, bare = zip(
            *(uvloop.run(_time_limiter(stores.limits_url, concurrency)) for _ in range(pace.rounds)), strict=True
        )
        yield Verdict(
            title=f"limiter at Valkey, {concurrency} asked at once",
            figure=spread([theirs_s / ours_s for ours_s, theirs_s in zip(shared, bare, strict=True)]),
            unit="%",
            target=Target(0.8, at_least=True),
            detail=f"{_CALLS / spread(shared).median:.0f}/s of bare script calls {_CALLS / spread(bare).median:.0f}/s",
        )


async def _time_limiter(url: str, concurrency: int) -> tuple[float, float]:
    """Return the seconds of `_CALLS` decisions and of as many bare calls."""
    limiter = SharedLimiter(LimitStore.at(url), Clock())
    await limiter.open()
    client = redis.Redis.from_url(url)
    sha = await client.script_load(SCRIPT)

    async def decide() -> None:
        for _ in range(_CALLS // concurrency):
            await limiter.api("svc_ci_limited", limit=10**9)

    async def call() -> None:
        for _ in range(_CALLS // concurrency):
            await client.evalsha(sha, 1, "stoplist:api:{svc_ci_bare}", 10**9, 1)

    try:
        return await _elapsed_s(decide, concurrency), await _elapsed_s(call, concurrency)
    finally:
        await client.flushdb()
        await client.aclose()
        await limiter.close()


async def _elapsed_s(work: Callable[[], Awaitable[None]], concurrency: int) -> float:
    begun_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return time.perf_counter() - begun_s


def _rate(loads: Sequence[Load]) -> str:
    return f"{spread([one.rate for one in loads]).median:.0f}/s"


def _cpu(loads: Sequence[Load]) -> str:
    return f"{spread([one.server_cpu_us for one in loads]).median:.0f} µs"
