"""The rows on requests that wait for a change: how soon they are answered, and the memory that they take.

Each key may hold 16, so there are many keys. Those that are held beside the reader follow another channel; in the end
one change answers them all, which proves that they were held throughout.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median, quantiles

import msgspec

from bench import product
from bench.product import Deployment, ProductServer
from bench.rounds import Run
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, Partner, client_credentials, get, post
from bench.server import BenchError, Caller
from bench.verdict import Verdict, verdict
from tests.e2e.server_process import Installation

_SMS = "/api/v1/unsubscribe/sms"
_HELD, _MOST_HELD, _HELD_A_KEY = 1_000, 2_000, 16
_ROUND_S = 10.0  # with the time to connect, less than a request is held
_SETTLE_S = 0.05
_PACE_S = 0.003  # a source may have 256 requests that wait for authentication
_PLENTY = "100000"
_people = {EMAIL: People("email", seed=40), _SMS: People("sms", seed=40)}


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite: within one process, and on memory."""
    deployment = _with_many_connections(Deployment.create(run.scratch / "waiting", partners=("bench",)))
    keys = _new_keys(deployment)
    with deployment.server() as server:
        yield _delay(run, server, server, keys, at_most=100)
    with deployment.server() as server:
        yield _memory(run, server, keys)


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL: within one process, and in another than the one that stores the change."""
    with ExitStack() as running:
        made = running.enter_context(product.on_postgresql(run.scratch / "waiting-postgresql", partners=("bench",)))
        deployment = _with_many_connections(made)
        keys = _new_keys(deployment)
        one, other = (running.enter_context(deployment.server()) for _ in range(2))
        yield _delay(run, one, one, keys, at_most=100)
        yield _delay(run, one, other, keys, at_most=1_500)


def _delay(
    run: Run, storing: ProductServer, waiting: ProductServer, keys: Sequence[Partner], *, at_most: int
) -> Verdict:
    """Return the verdict on the time from the answer of a POST to that of a reader who waits at the other server."""

    def measure(_: int) -> dict[str, float]:
        with ExitStack() as opened:
            held = _connect(opened, waiting, keys, _HELD)
            reader, writer = (opened.enter_context(server.caller()) for server in (waiting, storing))
            _wait_for_change(held)
            delays_s = _delays_s(reader, waiting.token, writer, storing.token)
            _require_held(held, storing)
        return {"p99": quantiles(delays_s, n=100)[98], "p50": median(delays_s)}

    where = "in the same process" if storing is waiting else "in another process"
    seen_s = run.rounds(run.parameters.rounds, measure, f"a change is told {where}", warm_up=True)
    title = f"answer of a POST to that of a waiting reader {where}, p99, {_HELD} held{storing.deployment.where}"
    detail = f"p50 {median(seen_s['p50']) * 1000:.1f} ms"
    return verdict(title, [p99_s * 1000 for p99_s in seen_s["p99"]], "ms", detail, at_most=at_most)


def _delays_s(reader: Caller, reader_token: str, writer: Caller, writer_token: str) -> list[float]:
    cursor, delays_s = _end_of_feed(reader, reader_token, EMAIL), list[float]()
    until_s = time.perf_counter() + _ROUND_S
    while time.perf_counter() < until_s:
        reader.send(_waiting_request(EMAIL, cursor, reader_token))
        time.sleep(_SETTLE_S)
        writer.call(post(EMAIL, writer_token, batch_body(_people[EMAIL].acts(1))))
        stored_s = time.perf_counter()
        page = json.loads(reader.receive().require().body)
        delays_s.append(time.perf_counter() - stored_s)
        if len(page["items"]) != 1:
            raise BenchError("the reader did not wait for the change")
        cursor = page["next_cursor"]
    return delays_s


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


class _Reader(msgspec.Struct, frozen=True):
    """A connection, and its place in the feed."""

    caller: Caller
    token: str
    cursor: str


def _connect(opened: ExitStack, server: ProductServer, keys: Sequence[Partner], count: int) -> list[_Reader]:
    """Open connections that have read to the end of the feed."""
    readers: list[_Reader] = []
    for key in keys[: -(-count // _HELD_A_KEY)]:
        token = str(json.loads(server.send_once(client_credentials(key)).require().body)["access_token"])
        for _ in range(min(_HELD_A_KEY, count - len(readers))):
            caller = opened.enter_context(server.caller())
            readers.append(_Reader(caller, token, _end_of_feed(caller, token, _SMS)))
    return readers


def _wait_for_change(readers: Sequence[_Reader]) -> None:
    for reader in readers:
        reader.caller.send(_waiting_request(_SMS, reader.cursor, reader.token))
        time.sleep(_PACE_S)


def _require_held(readers: Sequence[_Reader], server: ProductServer) -> None:
    """Answer all by a change. Raises BenchError if one was answered before."""
    server.send_once(post(_SMS, server.token, batch_body(_people[_SMS].acts(1)))).require()
    pages = [json.loads(reader.caller.receive().require().body) for reader in readers]
    if early := sum(len(page["items"]) != 1 for page in pages):
        raise BenchError(f"{early} of {len(pages)} requests were not held")


def _end_of_feed(caller: Caller, token: str, path: str) -> str:
    cursor, has_more = "", True
    while has_more:
        page = json.loads(caller.call(get(f"{path}?limit=10000{cursor}", token)).body)
        cursor, has_more = f"&cursor={page['next_cursor']}", page["has_more"]
    return str(page["next_cursor"])


def _waiting_request(path: str, cursor: str, token: str) -> bytes:
    return get(f"{path}?cursor={cursor}", token, "Prefer: wait=30")


def _with_many_connections(deployment: Deployment) -> Deployment:
    settings = {**deployment.settings, "STOPLIST_CONNECTIONS_PER_SOURCE": _PLENTY}
    return msgspec.structs.replace(deployment, settings=settings)


def _new_keys(deployment: Deployment) -> list[Partner]:
    installation = Installation(deployment.folder, DATABASE_URL=deployment.database_url)
    made = [
        installation.new_key(per_minute=int(_PLENTY), organization="bench") for _ in range(_MOST_HELD // _HELD_A_KEY)
    ]
    return [Partner(client_id=key.client_id, client_secret=key.client_secret) for key in made]
