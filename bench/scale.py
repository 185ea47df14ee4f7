"""The rows on PostgreSQL and Valkey: bare handlers with the same round trips, workers, hot feeds, the limiter."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psutil
import redis.asyncio as redis
import uvloop
from redis import Redis

from bench import load
from bench.load import Load
from bench.machine import process_s
from bench.product import DatabaseKind, Deployment, ProductServer, deployed, postgresql_meter
from bench.rounds import Run, Workload
from bench.sample_people import People
from bench.scripts import EMAIL, Partner, Scripts, reads, refresh_chains, repeat, token_requests
from bench.server import BenchError
from bench.verdict import Series, Verdict, verdict
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


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts on a deployment with a temporary Valkey."""
    with (
        _valkey_url() as url,
        deployed(database, run.scratch / "scale", settings={"STOPLIST_LIMITS_URL": url}) as deployment,
    ):
        with deployment.server() as server:
            scripts = _scripts(server.with_tokens())
        yield from _against_bare(run, deployment, scripts)
        with deployment.server() as server:
            yield from _costs(run, server, scripts)
            yield from _hot_feeds(run, server)
        yield from _limiter(run, url)


@contextmanager
def _valkey_url() -> Iterator[str]:
    try:
        with valkey.Valkey() as store:
            yield store.url
    except valkey.Unavailable as error:
        raise BenchError(str(error)) from error


def _scripts(partners: Sequence[Partner]) -> dict[str, Scripts]:
    people = People("email", seed=3)
    return {
        "look-up": reads(partners, lambda: f"{EMAIL}?address={people.address()}"),
        "client_credentials": token_requests(partners),
        "refresh chain": refresh_chains(partners),
    }


def _against_bare(run: Run, deployment: Deployment, scripts: Mapping[str, Scripts]) -> Iterator[Verdict]:
    with deployment.server() as one, deployment.server("--workers", "2") as two:
        sizes = [len(one.send_once(next(scripts[work](0))).body) for work in ("look-up", "client_credentials")]
        with deployment.bare("bare_handlers.stores", *sizes) as bare:
            seen = run.loads(
                Workload(work, subject, server, _CONNECTIONS, script)
                for work, script in scripts.items()
                for subject, server in ((_ONE, one), (_TWO, two), (_BARE, bare))
            )
    for work, share in _SHARES.items():
        ours, more, other = (seen[work, subject] for subject in (_ONE, _TWO, _BARE))
        detail = f"{ours.rate:.0f}/s of a bare handler with the same round trips {other.rate:.0f}/s"
        yield verdict(f"{work} (PostgreSQL and Valkey)", ours.rate / other.rate, "%", detail, at_least=share)
        # Processor times, because the rate depends on the cores that client and database leave free.
        title = f"{work}: server time a request with 2 workers against 1"
        detail = "; ".join(f"{of.server_cpu_us:.0f} µs, {of.rate:.0f}/s" for of in (more, ours))
        yield verdict(title, more.server_cpu_us / ours.server_cpu_us, "x", detail, at_most=1.3)


def _costs(run: Run, server: ProductServer, scripts: Mapping[str, Scripts]) -> Iterator[Verdict]:
    """Yield the verdicts on the processor time of requests. The capacity table of the operator guide is based on it."""
    run.progress("measuring what a request costs")
    with Redis.from_url(server.deployment.settings["STOPLIST_LIMITS_URL"]) as client:
        store = psutil.Process(int(client.info("server")["process_id"]))
    meters: tuple[Callable[[], float], ...] = (
        server.cpu_s,
        postgresql_meter(server.deployment.database_url),
        lambda: process_s(store),
    )
    people = People("email", seed=91)
    batches = [people.post(server.token, _BIG_BATCH) for _ in range(10)]

    def send(work: str) -> int:
        return load.run(server, [scripts[work](number) for number in range(16)], duration_s=_COSTS_S).requests

    def post_batches() -> int:
        with server.caller() as caller:
            return _BIG_BATCH * len([caller.call(one) for one in batches])

    works: dict[str, Callable[[], int]] = {
        "look-up": lambda: send("look-up"),
        "token request": lambda: send("client_credentials"),
        "new item of a batch of 10 000": post_batches,
    }
    for work, do in works.items():
        before_s = [meter() for meter in meters]
        count = do()
        used_us = [(meter() - before) / count * 1e6 for meter, before in zip(meters, before_s, strict=True)]
        detail = "server {:.0f}, PostgreSQL {:.0f}, Valkey {:.0f} µs".format(*used_us)
        yield verdict(f"processor time of a {work}", [sum(used_us)], "µs", detail)


def _hot_feeds(run: Run, server: ProductServer) -> Iterator[Verdict]:
    """Yield the verdicts on the same batches by the same writers: all into one feed, and each into its own."""
    feeds = list(itertools.islice(_feeds(server), _WRITERS))

    def write(number: int) -> dict[str, float]:
        loads = {
            "one": _write(server, feeds[:1] * _WRITERS, seed=number * 1_000),
            "many": _write(server, feeds, seed=number * 1_000 + 500),
        }
        figures = itertools.product(loads, ("rate", "p99_ms", "longest_ms"))
        return {f"{name} {figure}": getattr(loads[name], figure) for name, figure in figures}

    seen = run.rounds(write, f"{_WRITERS} writers", warm_up=False)
    one, many = seen["one rate"], seen["many rate"]
    title = f"{_WRITERS} feeds with one writer each against one feed with {_WRITERS}"
    detail = f"batches of {_BATCH} new items: {many:.0f}/s, {one:.0f}/s"
    yield verdict(title, many / one, "x", detail, at_least=1.0)
    longest = Series([*seen["one longest_ms"].figures, *seen["many longest_ms"].figures]) / 1000
    detail = f"p99 {seen['one p99_ms']:.0f} ms into one feed, {seen['many p99_ms']:.0f} ms into {_WRITERS}"
    yield verdict("the longest of those POSTs", longest, "s", detail, at_most=5.0)


def _feeds(server: ProductServer) -> Iterator[_Feed]:
    for number in itertools.count():
        slug = f"feed-{number}"
        server.deployment.run("org", "create", slug, "--name", slug, "--default-group", "News")
        token = server.new_token(server.deployment.make_key(slug))
        yield from ((channel, token) for channel in _CHANNELS)


def _write(server: ProductServer, feeds: Sequence[_Feed], *, seed: int) -> Load:
    scripts = []
    for number, (channel, token) in enumerate(feeds):
        people = People(channel, seed=seed + number)
        scripts.append(repeat([people.post(token, _BATCH) for _ in range(_BATCHES_A_WRITER)]))
    seen = load.run(server, scripts, warm_up_s=0.2, duration_s=_WRITING_S)
    if seen.failures:
        raise BenchError(f"a batch was answered wrongly: {seen.first_failure}")
    if seen.requests > len(feeds) * _BATCHES_A_WRITER * 0.9:
        raise BenchError("the batches of the hot feeds ran out: prepare more of them")
    return seen


def _limiter(run: Run, url: str) -> Iterator[Verdict]:
    """Yield the verdicts on decisions of the limiter, against bare calls of its script through the same client."""
    for concurrency in (1, _CONNECTIONS):

        def time_limiter(_: int, concurrency: int = concurrency) -> dict[str, float]:
            return uvloop.run(_time_limiter(url, concurrency))

        seen_s = run.rounds(time_limiter, f"limiter, {concurrency} asked at once", warm_up=False)
        ours, bare = (_CALLS / one_s for one_s in seen_s.values())
        title = f"limiter at Valkey, {concurrency} asked at once"
        detail = f"{ours:.0f}/s of bare script calls {bare:.0f}/s"
        yield verdict(title, ours / bare, "%", detail, at_least=0.8)


async def _time_limiter(url: str, concurrency: int) -> dict[str, float]:
    """Return the seconds of `_CALLS` decisions and of as many bare calls."""
    limiter = SharedLimiter(LimitStore.at(url), Clock())
    await limiter.open()
    client = redis.Redis.from_url(url)
    sha = await client.script_load(SCRIPT)

    async def repeat_s(call: Callable[[], Awaitable[object]]) -> float:
        async def repeat() -> None:
            for _ in range(_CALLS // concurrency):
                await call()

        begun_s = time.perf_counter()
        await asyncio.gather(*(repeat() for _ in range(concurrency)))
        return time.perf_counter() - begun_s

    try:
        return {
            "shared": await repeat_s(lambda: limiter.api("svc_ci_limited", limit=10**9)),
            "bare": await repeat_s(lambda: client.evalsha(sha, 1, "stoplist:api:{svc_ci_bare}", 10**9, 1)),
        }
    finally:
        await client.flushdb()
        await client.aclose()
        await limiter.close()
