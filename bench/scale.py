"""The rows on PostgreSQL and Valkey: bare handlers with the same round trips, workers, hot feeds, the limiter."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median

import psutil
import redis.asyncio as redis
import uvloop
from redis import Redis

from bench import load, product
from bench.load import Load, require_right
from bench.machine import PostgresqlTime, process_s
from bench.product import Deployment, ProductServer
from bench.rounds import Run, Workload, run_workloads
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, Partner, Scripts, post, reads, refresh_chains, repeat, token_requests
from bench.server import BenchError, Server
from bench.verdict import Verdict, compare_rates, compare_times, per_second, ratios, verdict
from stoplist.clock import Clock
from stoplist.limits.shared import SharedLimiter
from stoplist.limits.store import SCRIPT, LimitStore
from tests.services import valkey

_CONNECTIONS = 32
_WRITERS, _BATCH, _BATCHES_A_WRITER, _WRITING_S = 32, 200, 30, 3.0
_COSTS_S, _BIG_BATCH = 3.0, 10_000
_CALLS = 6_400
_CHANNELS = ("email", "sms", "phone")
_ONE, _TWO, _BARE = "1 worker", "2 workers", "bare handler"
# The least share of the rate of the bare handler.
_SHARES = {"look-up": 0.6, "client_credentials": 0.7, "refresh chain": 0.7}

_Feed = tuple[str, str]
"""The channel of a feed, and an access token for it."""


def measure(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on a deployment on a temporary PostgreSQL and Valkey."""
    with _valkey_url() as url, product.on_postgresql(run.scratch / "scale", limits_url=url) as deployment:
        with deployment.server() as server:
            partners = product.with_tokens(server)
        scripts = _scripts(partners)
        yield from _against_bare(run, deployment, scripts)
        with deployment.server() as server:
            yield from _costs(run, server, scripts)
            yield from _hot_feeds(run, server)
        yield from _limiter(run, url)


@contextmanager
def _valkey_url() -> Iterator[str]:
    try:
        with valkey.valkey() as store:
            yield store.url
    except valkey.Unavailable as error:
        raise BenchError(str(error)) from error


def _scripts(partners: Sequence[Partner]) -> dict[str, Scripts]:
    people = People("email", seed=3)
    return {
        "look-up": reads(partners, lambda: f"{EMAIL}?address={people.acts(1)[0].address}"),
        "client_credentials": token_requests(partners),
        "refresh chain": refresh_chains(partners),
    }


def _against_bare(run: Run, deployment: Deployment, scripts: Mapping[str, Scripts]) -> Iterator[Verdict]:
    with deployment.server() as one, deployment.server("--workers", "2") as two:
        sizes = [len(one.send_once(next(scripts[work](0))).body) for work in ("look-up", "client_credentials")]
        with deployment.bare("bare_stores", *sizes) as bare:
            servers = {_ONE: one, _TWO: two, _BARE: bare}
            workloads = [
                Workload(work, subject, server, _CONNECTIONS, script)
                for work, script in scripts.items()
                for subject, server in servers.items()
            ]
            seen = run_workloads(run, workloads)
    require_right(itertools.chain(*seen.values()))
    for work, share in _SHARES.items():
        ours, bare_loads = seen[work, _ONE], seen[work, _BARE]
        title, words = f"{work} (PostgreSQL and Valkey)", "{} of a bare handler with the same round trips {}"
        yield compare_rates(title, "%", ours, bare_loads, words, at_least=share)
        yield _more_workers(work, ours, seen[work, _TWO])


def _more_workers(work: str, one: Sequence[Load], two: Sequence[Load]) -> Verdict:
    """Compare processor times, because the rate depends on the cores that client and database leave free."""
    times = [[load.server_cpu_us for load in loads] for loads in (two, one)]
    detail = "; ".join(
        f"{median(us):.0f} µs, {median(load.rate for load in loads):.0f}/s"
        for us, loads in zip(times, (two, one), strict=True)
    )
    return verdict(f"{work}: server time a request with 2 workers against 1", ratios(*times), "x", detail, at_most=1.3)


def _costs(run: Run, server: ProductServer, scripts: Mapping[str, Scripts]) -> Iterator[Verdict]:
    """Yield the verdicts on the processor time of requests. The capacity table of the operator guide is based on it."""
    run.progress("measuring what a request costs")
    with Redis.from_url(server.deployment.limits_url) as client:
        store = psutil.Process(int(client.info("server")["process_id"]))
    meters = (server.cpu_s, PostgresqlTime(server.deployment.database_url).cpu_s, lambda: process_s(store))

    def send(work: str) -> int:
        return load.run(server, [scripts[work](number) for number in range(16)], duration_s=_COSTS_S).requests

    yield _cost("look-up", meters, lambda: send("look-up"))
    yield _cost("token request", meters, lambda: send("client_credentials"))
    people = People("email", seed=91)
    batches = [post(EMAIL, server.token, batch_body(people.acts(_BIG_BATCH))) for _ in range(10)]
    with server.caller() as caller:
        yield _cost(
            "new item of a batch of 10 000", meters, lambda: _BIG_BATCH * len([caller.call(one) for one in batches])
        )


def _cost(work: str, meters: Sequence[Callable[[], float]], send: Callable[[], int]) -> Verdict:
    """Return the verdict on the processor time of each of the things that `send` counts."""
    before_s = [cpu_s() for cpu_s in meters]
    count = send()
    used_us = [(cpu_s() - before) / count * 1e6 for cpu_s, before in zip(meters, before_s, strict=True)]
    detail = "server {:.0f}, PostgreSQL {:.0f}, Valkey {:.0f} µs".format(*used_us)
    return verdict(f"processor time of a {work}", [sum(used_us)], "µs", detail)


def _hot_feeds(run: Run, server: ProductServer) -> Iterator[Verdict]:
    """Yield the verdicts on the same batches by the same writers: all into one feed, and each into its own."""
    feeds = list(itertools.islice(_feeds(server), _WRITERS))

    def write(number: int) -> dict[str, Load]:
        one, many = feeds[:1] * _WRITERS, feeds
        return {
            "one feed": _write(server, one, seed=number * 1_000),
            "each its own": _write(server, many, seed=number * 1_000 + 500),
        }

    one, many = run.rounds(run.parameters.rounds, write, f"{_WRITERS} writers").values()
    title = f"{_WRITERS} feeds with one writer each against one feed with {_WRITERS}"
    yield compare_rates(title, "x", many, one, f"batches of {_BATCH} new items: {{}}, {{}}", at_least=1.0)
    one_ms, many_ms = (median(load.p99_ms for load in loads) for loads in (one, many))
    detail = f"p99 {one_ms:.0f} ms into one feed, {many_ms:.0f} ms into {_WRITERS}"
    longest_s = [load.longest_ms / 1000 for load in (*one, *many)]
    yield verdict("the longest of those POSTs", longest_s, "s", detail, at_most=5.0)


def _feeds(server: ProductServer) -> Iterator[_Feed]:
    for number in itertools.count():
        slug = f"feed-{number}"
        server.deployment.run("org", "create", slug, "--name", slug, "--default-group", "News")
        token = server.new_token(server.deployment.make_key(slug))
        yield from ((channel, token) for channel in _CHANNELS)


def _write(server: Server, feeds: Sequence[_Feed], *, seed: int) -> Load:
    scripts = []
    for number, (channel, token) in enumerate(feeds):
        people = People(channel, seed=seed + number)
        bodies = [batch_body(people.acts(_BATCH)) for _ in range(_BATCHES_A_WRITER)]
        scripts.append(repeat([post(f"/api/v1/unsubscribe/{channel}", token, body) for body in bodies]))
    seen = load.run(server, scripts, warm_up_s=0.2, duration_s=_WRITING_S)
    require_right([seen])
    if seen.requests > len(feeds) * _BATCHES_A_WRITER * 0.9:
        raise BenchError("the batches of the hot feeds ran out: prepare more of them")
    return seen


def _limiter(run: Run, url: str) -> Iterator[Verdict]:
    """Yield the verdicts on decisions of the limiter, against bare calls of its script through the same client."""
    for concurrency in (1, _CONNECTIONS):
        seen_s = run.rounds(
            run.parameters.rounds,
            lambda _, concurrency=concurrency: uvloop.run(_time_limiter(url, concurrency)),  # type: ignore[misc]
            f"limiter, {concurrency} asked at once",
        )
        title, words = f"limiter at Valkey, {concurrency} asked at once", "{} of bare script calls {}"
        yield compare_times(title, seen_s.values(), words, per_second(_CALLS), at_least=0.8)


async def _time_limiter(url: str, concurrency: int) -> dict[str, float]:
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
        return {"shared": await _elapsed_s(decide, concurrency), "bare": await _elapsed_s(call, concurrency)}
    finally:
        await client.flushdb()
        await client.aclose()
        await limiter.close()


async def _elapsed_s(work: Callable[[], Awaitable[None]], concurrency: int) -> float:
    begun_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return time.perf_counter() - begun_s
