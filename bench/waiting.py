"""The rows on requests that wait for a change: how soon they are answered, and the memory that they take.

Each key may hold 16, so there are many keys. Those that are held beside the reader follow another channel; in the end
one change answers them all, which proves that they were held throughout.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median, quantiles

import msgspec

from bench.product import SQLITE, DatabaseKind, ProductServer, deployed
from bench.rounds import Run
from bench.sample_people import People
from bench.scripts import EMAIL, Partner, get
from bench.server import BenchError, Caller
from bench.verdict import Verdict, verdict
from tests.e2e.server_process import Installation

_SMS = "/api/v1/unsubscribe/sms"
_HELD, _MOST_HELD, _HELD_A_KEY = 1_000, 2_000, 16
_ROUND_S = 10.0  # with the time to connect, less than a request is held
_SETTLE_S = 0.05
_PACE_S = 0.003  # a source may have 256 requests that wait for authentication
_PLENTY = 100_000
_people = {EMAIL: People("email", seed=40), _SMS: People("sms", seed=40)}


class _Reader(msgspec.Struct, frozen=True):
    """A connection, and its place in the feed."""

    caller: Caller
    token: str
    cursor: str


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts on delays within one process, and on memory; on PostgreSQL on delays between two processes."""
    folder, settings = run.scratch / f"waiting-{database.name}", {"STOPLIST_CONNECTIONS_PER_SOURCE": str(_PLENTY)}
    with deployed(database, folder, partners=("bench",), settings=settings) as deployment:
        # In this process, because the command takes a second for a key.
        installation = Installation(folder, DATABASE_URL=deployment.database_url)
        made = [
            installation.new_key(per_minute=_PLENTY, organization="bench") for _ in range(_MOST_HELD // _HELD_A_KEY)
        ]
        keys = [Partner(*key) for key in made]
        with deployment.server() as server:
            yield _delay(run, server, server, keys, at_most=100)
            if database is not SQLITE:
                with deployment.server() as other:
                    yield _delay(run, server, other, keys, at_most=1_500)
        if database is SQLITE:
            with deployment.server() as server:
                yield _memory(run, server, keys)


def _delay(
    run: Run, storing: ProductServer, waiting: ProductServer, keys: Sequence[Partner], *, at_most: int
) -> Verdict:
    """Return the verdict on the time from the answer of a POST to that of a reader who waits at the other server."""

    def measure_ms(_: int) -> dict[str, float]:
        with ExitStack() as opened:
            held = _connect(opened, waiting, keys, _HELD)
            reader, writer = (opened.enter_context(server.caller()) for server in (waiting, storing))
            _wait_for_change(held)
            delays_ms = _delays_ms(reader, waiting.token, writer, storing.token)
            _require_held(held, storing)
        return {"p99": quantiles(delays_ms, n=100)[98], "p50": median(delays_ms)}

    where = "in the same process" if storing is waiting else "in another process"
    seen_ms = run.rounds(measure_ms, f"a change is told {where}")
    title = f"answer of a POST to that of a waiting reader {where}, p99, {_HELD} held{storing.deployment.where}"
    return verdict(title, seen_ms["p99"], "ms", f"p50 {seen_ms['p50']:.1f} ms", at_most=at_most)


def _delays_ms(reader: Caller, reader_token: str, writer: Caller, writer_token: str) -> list[float]:
    cursor, delays_ms = reader.end_of_feed(EMAIL, reader_token), list[float]()
    until_s = time.perf_counter() + _ROUND_S
    while time.perf_counter() < until_s:
        reader.send(_waiting_request(EMAIL, cursor, reader_token))
        time.sleep(_SETTLE_S)
        writer.call(_people[EMAIL].post(writer_token, 1))
        stored_s = time.perf_counter()
        page = reader.receive().json()
        delays_ms.append((time.perf_counter() - stored_s) * 1000)
        if len(page["items"]) != 1:
            raise BenchError("the reader did not wait for the change")
        cursor = page["next_cursor"]
    return delays_ms


def _memory(run: Run, server: ProductServer, keys: Sequence[Partner]) -> Verdict:
    """Return the verdict on what held requests take beyond the same connections while they were idle."""
    with ExitStack() as opened:
        held = _connect(opened, server, keys, _MOST_HELD)
        idle_mib = server.rss_mib()
        _wait_for_change(held)
        time.sleep(1)
        held_mib = server.rss_mib()
        _require_held(held, server)
    detail = f"{held_mib:.0f} MiB, {idle_mib:.0f} MiB idle"
    run.progress(f"memory of {_MOST_HELD} held requests: {detail}")
    return verdict(f"memory of {_MOST_HELD} held requests", [held_mib - idle_mib], "MiB", detail, at_most=40)


def _connect(opened: ExitStack, server: ProductServer, keys: Sequence[Partner], count: int) -> list[_Reader]:
    """Open connections that have read to the end of the feed."""
    readers: list[_Reader] = []
    for key in keys[: -(-count // _HELD_A_KEY)]:
        token = server.new_token(key)
        for _ in range(min(_HELD_A_KEY, count - len(readers))):
            caller = opened.enter_context(server.caller())
            readers.append(_Reader(caller, token, caller.end_of_feed(_SMS, token)))
    return readers


def _wait_for_change(readers: Sequence[_Reader]) -> None:
    for reader in readers:
        reader.caller.send(_waiting_request(_SMS, reader.cursor, reader.token))
        time.sleep(_PACE_S)


def _require_held(readers: Sequence[_Reader], server: ProductServer) -> None:
    """Answer all by a change. Raises BenchError if one was answered before."""
    server.send_once(_people[_SMS].post(server.token, 1)).require()
    pages = [reader.caller.receive().json() for reader in readers]
    if early := sum(len(page["items"]) != 1 for page in pages):
        raise BenchError(f"{early} of {len(pages)} requests were not held")


def _waiting_request(path: str, cursor: str, token: str) -> bytes:
    return get(f"{path}?cursor={cursor}", token, "Prefer: wait=30")
