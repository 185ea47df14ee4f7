"""Measures how long others wait while partners post big batches without pause."""

import json
import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles

import msgspec

from bench.caller import Caller
from bench.sample_people import People, batch_body
from bench.scripts import Partner, client_credentials
from bench.server import BenchError, Server, send_once

PATH = "/api/v1/unsubscribe/email"
_BATCH = 10_000
_BODIES_A_POSTER = 10
_PAUSE_S = 0.003


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one kind of request, in milliseconds."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    requests: int


def measure_during_batches(
    partners: list[Partner], tokens: list[str], server: Server, *, duration_s: float, seed: int
) -> dict[str, Latency]:
    """Return the waits of a read, a token request and a one-item POST while each partner posts batches of 10 000."""
    context = multiprocessing.get_context("spawn")
    ready, go, stop = context.Barrier(len(tokens) + 1), context.Event(), context.Event()
    posters = [
        context.Process(target=_post, args=(server.port, server.ca, token, seed + number, ready, go, stop))
        for number, token in enumerate(tokens)
    ]
    for poster in posters:
        poster.start()
    ready.wait(120)
    go.set()
    try:
        return _probe(partners[0], tokens[0], server, duration_s, seed)
    finally:
        stop.set()
        for poster in posters:
            poster.join(60)
            if poster.exitcode:
                raise BenchError("a partner that posts batches failed")


def _post(port: int, ca: Path, token: str, seed: int, ready: "threading.Barrier", go: Event, stop: Event) -> None:
    people = People("email", seed)
    bodies = [batch_body(people.acts(_BATCH)) for _ in range(_BODIES_A_POSTER)]
    ready.wait()
    go.wait()
    with Caller(port=port, ca=ca, access_token=token) as caller:
        while not stop.is_set():
            for body in bodies:
                if stop.is_set():
                    return
                caller.post(PATH, body, prefer="return=minimal")
            bodies = [batch_body(people.acts(_BATCH)) for _ in range(_BODIES_A_POSTER)]


def _probe(partner: Partner, token: str, server: Server, duration_s: float, seed: int) -> dict[str, Latency]:
    people = People("email", seed + 1_000)

    def read(caller: Caller) -> None:
        caller.get(f"{PATH}?address={people.acts(1)[0].address}")

    def request_token(_: Caller) -> None:
        answer = send_once(client_credentials(partner), port=server.port, ca=server.ca)
        if answer.status != b"200":
            raise BenchError(f"the token request was answered {answer.status!r}")

    def post_one(caller: Caller) -> None:
        body = batch_body(people.acts(1))
        if json.loads(caller.post(PATH, body).body)["created"] != 1:
            raise BenchError("one new item was not created")

    kinds: dict[str, Callable[[Caller], None]] = {
        "read": read,
        "token request, new connection": request_token,
        "one-item POST": post_one,
    }
    times_s: dict[str, list[float]] = {kind: [] for kind in kinds}
    until_s = time.perf_counter() + duration_s

    def repeat(kind: str) -> None:
        with Caller(port=server.port, ca=server.ca, access_token=token) as caller:
            while time.perf_counter() < until_s:
                begun_s = time.perf_counter()
                kinds[kind](caller)
                times_s[kind].append(time.perf_counter() - begun_s)
                time.sleep(_PAUSE_S)

    threads = [threading.Thread(target=repeat, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {kind: _latency(seconds) for kind, seconds in times_s.items()}


def _latency(seconds: list[float]) -> Latency:
    cuts = quantiles(seconds, n=100)
    return Latency(
        p50_ms=cuts[49] * 1000, p99_ms=cuts[98] * 1000, longest_ms=max(seconds) * 1000, requests=len(seconds)
    )
