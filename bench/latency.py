"""Measures how long others wait while some post without pause, or a file is imported."""

import multiprocessing
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec

from bench.machine import timed
from bench.product import ProductServer
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, Partner, client_credentials, get, post
from bench.server import BenchError, Caller

_BATCH, _BODIES_A_POSTER = 10_000, 10
_PAUSE_S = 0.003
_SPAWN = multiprocessing.get_context("spawn")


class Latency(msgspec.Struct, frozen=True):
    """The times of one kind of request, in milliseconds."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    requests: int


def measure_during_batches(server: ProductServer, *, duration_s: float, seed: int) -> dict[str, Latency]:
    """Return the waits of three kinds of requests by the first partner, while each partner posts batches of 10 000."""
    with posting(server, server.deployment.partners, Posts(batch=_BATCH, seed=seed)):
        return probe(server, duration_s, People("email", seed + 1_000))


def measure_during_import(
    server: ProductServer, command: Sequence[str], *, duration_s: float, seed: int
) -> dict[str, Latency]:
    """Return the same waits while a command imports a file, which must last longer than that."""
    folder, environ = server.deployment.folder.parent, server.deployment.environ()
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as it:
        waits = probe(server, duration_s, People("email", seed + 1_000))
        if it.poll() is not None:
            raise BenchError("the import ended before the measurement")
        it.terminate()
    return waits


class Posts(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of new people that a partner posts again and again, with a pause before each."""

    batch: int
    seed: int
    connections: int = 1
    pause_s: float = 0.0
    may_fail: bool = False


@contextmanager
def posting(server: ProductServer, partners: Sequence[Partner], posts: Posts) -> Iterator[None]:
    """Let each of these partners post, in a process of its own. Raises BenchError if a post failed that may not."""
    ready, stop = _SPAWN.Barrier(len(partners) * posts.connections + 1), _SPAWN.Event()
    processes = [
        _SPAWN.Process(
            target=_post_in_threads,
            args=(posts, number * posts.connections, server.port, server.ca, server.new_token(partner), ready, stop),
        )
        for number, partner in enumerate(partners)
    ]
    for process in processes:
        process.start()
    ready.wait(120)
    try:
        yield
    finally:
        stop.set()
        for process in processes:
            process.join(60)
            if process.exitcode and not posts.may_fail:
                raise BenchError("a partner that posts batches failed")


def _post_in_threads(posts: Posts, first: int, *arguments: Any) -> None:
    with ThreadPoolExecutor(posts.connections) as threads:
        posted = [threads.submit(_post, posts, first + number, *arguments) for number in range(posts.connections)]
    for one in posted:
        one.result()


def _post(
    posts: Posts, number: int, port: int, ca: Path | None, token: str, ready: threading.Barrier, stop: Event
) -> None:
    people = People("email", posts.seed + number)

    def next_requests() -> list[bytes]:
        return [people.post(token, posts.batch) for _ in range(_BODIES_A_POSTER)]

    requests = next_requests()
    ready.wait()
    with Caller(port, ca) as caller:
        while True:
            for request in requests:
                if stop.wait(posts.pause_s):
                    return
                caller.send(request)
                answer = caller.receive()
                if not posts.may_fail:
                    answer.require()
            requests = next_requests()


def probe(server: ProductServer, duration_s: float, people: People) -> dict[str, Latency]:
    """Return the waits of three kinds of requests by the first partner, each sent again and again."""

    def read(caller: Caller) -> None:
        caller.call(get(f"{EMAIL}?address={people.address()}", server.token))

    def request_token(_: Caller) -> None:
        server.send_once(client_credentials(server.deployment.partners[0])).require()

    def post_one(caller: Caller) -> None:
        answer = caller.call(post(EMAIL, server.token, batch_body(people.acts(1)), is_minimal=False))
        if answer.json()["created"] != 1:
            raise BenchError("one new item was not created")

    kinds = {"read": read, "token request, new connection": request_token, "one-item POST": post_one}
    until_s = time.perf_counter() + duration_s

    def repeat(work: Callable[[Caller], None]) -> Latency:
        times_ms = []
        with server.caller() as caller:
            while time.perf_counter() < until_s:
                times_ms.append(timed(work, caller)[0] * 1000)
                time.sleep(_PAUSE_S)
        cuts = quantiles(times_ms, n=100)
        return Latency(cuts[49], cuts[98], max(times_ms), len(times_ms))

    with ThreadPoolExecutor(len(kinds)) as threads:
        return dict(zip(kinds, threads.map(repeat, kinds.values()), strict=True))
