"""Measures how long others wait while big batches are posted without pause, or a file is imported."""

import json
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

import msgspec

from bench.product import ProductServer
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, client_credentials, get, post
from bench.server import BenchError, Caller

_BATCH, _BODIES_A_POSTER = 10_000, 10
_PAUSE_S = 0.003


class Latency(msgspec.Struct, frozen=True):
    """The times of one kind of request, in milliseconds."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    requests: int


def measure_during_batches(server: ProductServer, *, duration_s: float, seed: int) -> dict[str, Latency]:
    """Return the waits of three kinds of requests by the first partner, while each partner posts batches of 10 000."""
    with _posting(server, seed):
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


@contextmanager
def _posting(server: ProductServer, seed: int) -> Iterator[None]:
    tokens = [server.new_token(partner) for partner in server.deployment.partners]
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Barrier(len(tokens) + 1), context.Event()
    posters = [
        context.Process(target=_post, args=(server.port, server.ca, token, seed + number, ready, stop))
        for number, token in enumerate(tokens)
    ]
    for poster in posters:
        poster.start()
    ready.wait(120)
    try:
        yield
    finally:
        stop.set()
        for poster in posters:
            poster.join(60)
            if poster.exitcode:
                raise BenchError("a partner that posts batches failed")


def _post(port: int, ca: Path | None, token: str, seed: int, ready: "threading.Barrier", stop: Event) -> None:
    people = People("email", seed)

    def next_requests() -> list[bytes]:
        return [post(EMAIL, token, batch_body(people.acts(_BATCH))) for _ in range(_BODIES_A_POSTER)]

    requests = next_requests()
    ready.wait()
    with Caller(port, ca) as caller:
        while not stop.is_set():
            for request in requests:
                if stop.is_set():
                    return
                caller.call(request)
            requests = next_requests()


def probe(server: ProductServer, duration_s: float, people: People) -> dict[str, Latency]:
    """Return the waits of three kinds of requests by the first partner, each sent again and again."""

    def read(caller: Caller) -> None:
        caller.call(get(f"{EMAIL}?address={people.acts(1)[0].address}", server.token))

    def request_token(_: Caller) -> None:
        server.send_once(client_credentials(server.deployment.partners[0])).require()

    def post_one(caller: Caller) -> None:
        answer = caller.call(post(EMAIL, server.token, batch_body(people.acts(1)), is_minimal=False))
        if json.loads(answer.body)["created"] != 1:
            raise BenchError("one new item was not created")

    kinds: dict[str, Callable[[Caller], None]] = {
        "read": read,
        "token request, new connection": request_token,
        "one-item POST": post_one,
    }
    until_s = time.perf_counter() + duration_s

    def repeat(work: Callable[[Caller], None]) -> Latency:
        seconds = []
        with server.caller() as caller:
            while time.perf_counter() < until_s:
                begun_s = time.perf_counter()
                work(caller)
                seconds.append(time.perf_counter() - begun_s)
                time.sleep(_PAUSE_S)
        cuts = quantiles(seconds, n=100)
        return Latency(cuts[49] * 1000, cuts[98] * 1000, max(seconds) * 1000, len(seconds))

    with ThreadPoolExecutor(len(kinds)) as threads:
        return dict(zip(kinds, threads.map(repeat, kinds.values()), strict=True))
