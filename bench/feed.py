"""The rows on opt-outs at a million records: submitting, looking up and following, each against a baseline."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.direct import PlainConnection, baseline
from bench.latency import measure_during_batches
from bench.machine import timed
from bench.product import SQLITE, DatabaseKind, Deployment, ProductServer, deployed
from bench.rounds import Run, Workload
from bench.sample_people import Act, People, batch_body, rows
from bench.scripts import EMAIL, get, post, rotated
from bench.server import BenchError, Caller
from bench.verdict import Series, Verdict, verdict
from stoplist.unsubscribes.model import Record

_FEED_IDS = {"email": 17, "phone": 19}
_SMALL_BATCH, _BATCH, _FEW_RECORDS = 1_000, 10_000, 10_000
_PAGE = 10_000
_CONNECTIONS = 16
# Twice the memory of the server's writer.
_CACHE_KIB = 65_536
# Several in a row, so that work put off until after an answer is measured with the next one.
_BATCHES_TOGETHER = 3
_SELECT_PAGE = """
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq
FROM {table} WHERE feed_id = {feed_id} AND seq > {after} ORDER BY seq LIMIT {limit}
"""


class _Targets(msgspec.Struct, frozen=True):
    """The least shares of the speed of the baseline, and the longest wait of a read as a part of a batch."""

    new: float
    again: float
    page: float
    read: float


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts; on SQLite also those on reads and memory."""
    targets = _Targets(0.6, 2.2, 0.7, 0.1) if database is SQLITE else _Targets(0.4, 1.5, 0.5, 0.2)
    folder = run.scratch / f"feed-{database.name}"
    with deployed(database, folder) as deployment:
        _fill(run, deployment, run.parameters.records)
        with baseline(deployment.database_url, cache_kib=_CACHE_KIB) as plain, deployment.server() as server:
            yield from _posts(run, server, plain, targets)
            yield _pages(run, server, plain, targets)
            if database is not SQLITE:
                yield from _waits(run, server, targets)
                return
        with deployed(database, Path(f"{folder}-few")) as few:
            _fill(run, few, _FEW_RECORDS)
            with few.server() as few_server, deployment.server() as server:
                yield from _reads(run, {"few": few_server, "many": server})
                yield _internationalized(run, server)
                yield from _waits(run, server, targets)
                yield verdict(
                    "memory after reads, pages and batches", [server.rss_mib()], "MiB", "resident", at_most=220
                )


def _fill(run: Run, deployment: Deployment, records: int) -> None:
    """Fill each feed with `records` records, through the API."""
    with deployment.server() as server, server.caller() as caller:
        for channel in _FEED_IDS:
            run.progress(f"filling {deployment.folder.name}: {records} records, {channel}")
            people = People(channel, seed=1)
            for _ in range(records // _BATCH):
                caller.call(people.post(server.token, _BATCH))
    os.sync()


def _posts(run: Run, server: ProductServer, plain: PlainConnection, targets: _Targets) -> Iterator[Verdict]:
    """Yield the verdicts on new batches, against the same rows inserted directly, and on the same batches again."""
    for channel, size in itertools.product(_FEED_IDS, (_SMALL_BATCH, _BATCH)):
        people = People(channel, seed=size)

        def post_ms(_: int, channel: str = channel, size: int = size, people: People = people) -> dict[str, float]:
            batches = [people.acts(size) for _ in range(_BATCHES_TOGETHER)]
            with server.caller() as caller:
                seen_s = {
                    "new": sum(_post_s(caller, server, channel, acts, "created") for acts in batches),
                    "again": sum(_post_s(caller, server, channel, acts, "unchanged") for acts in batches),
                    "plain": sum(_insert_s(plain, acts, _FEED_IDS[channel]) for acts in batches),
                }
            return {name: one_s * 1000 / _BATCHES_TOGETHER for name, one_s in seen_s.items()}

        seen_ms = run.rounds(post_ms, f"{channel} {size}")
        new_ms, again_ms, plain_ms = seen_ms["new"], seen_ms["again"], seen_ms["plain"]
        title, where = f"POST of {size} new items, {channel}", server.deployment.where
        detail = f"{new_ms:.0f} ms of {plain_ms:.0f} ms for the rows alone"
        yield verdict(f"{title}{where}", plain_ms / new_ms, "%", detail, at_least=targets.new)
        title, detail = f"the same {size} again, {channel}", f"{again_ms:.0f} ms after {new_ms:.0f} ms"
        yield verdict(f"{title}{where}", new_ms / again_ms, "x", detail, at_least=targets.again)


def _insert_s(plain: PlainConnection, acts: Sequence[Act], feed_id: int) -> float:
    """Return the seconds that it takes to write the rows of the acts durably, after those that the feed has."""
    ((newest,),) = plain.query(f"SELECT max(seq) FROM {plain.table} WHERE feed_id = {feed_id}")  # noqa: S608
    # A made-up number may occur twice among a million.
    unique = list({act.address: act for act in acts}.values())
    return plain.insert_s([rows(unique, feed_id=feed_id, after=int(newest or 0))])


def _internationalized(run: Run, server: ProductServer) -> Verdict:
    """Return the verdict on new batches whose items each have an internationalized domain of their own."""
    people = People("email", seed=91)

    def measure_ms(_: int) -> dict[str, float]:
        seen_ms = {"plain": 0.0, "other": 0.0}
        with server.caller() as caller:
            for _, name in itertools.product(range(_BATCHES_TOGETHER), seen_ms):
                acts = people.acts(_BATCH)
                if name == "other":
                    acts = [
                        msgspec.structs.replace(one, address=f"a@bü{one.address.replace('@', '.')}") for one in acts
                    ]
                before_s = server.cpu_s()
                _post_s(caller, server, "email", acts, "created")
                seen_ms[name] += (server.cpu_s() - before_s) * 1000 / _BATCHES_TOGETHER
        return seen_ms

    plain_ms, other_ms = run.rounds(measure_ms, "internationalized domains").values()
    title = f"{_BATCH} different internationalized domains: server time against plain items"
    detail = f"{other_ms:.0f} ms, {plain_ms:.0f} ms of processor time"
    return verdict(title, other_ms / plain_ms, "x", detail, at_most=4.0)


def _pages(run: Run, server: ProductServer, plain: PlainConnection, targets: _Targets) -> Verdict:
    """Return the verdict on the first full read, against fetching and encoding the same pages."""
    run.progress("reading the feed in pages of 10 000")
    after, ours_ms, plain_ms = 0, [], []
    with server.caller() as caller:
        for page, took_s in itertools.islice(caller.pages(EMAIL, server.token), run.parameters.pages):
            if len(page["items"]) < _PAGE:
                break
            ours_ms.append(took_s * 1000)
            plain_ms.append(timed(_read_page, plain, after)[0] * 1000)
            after = page["items"][-1]["seq"]
    ours, other = Series(ours_ms), Series(plain_ms)
    title = f"pages of {_PAGE} of the first full read{server.deployment.where}"
    detail = f"{ours:.0f} ms of {other:.0f} ms for fetch and encode, {len(ours_ms)} pages"
    return verdict(title, other / ours, "%", detail, at_least=targets.page)


def _read_page(plain: PlainConnection, after: int) -> bytes:
    """Return a page of the feed as JSON, fetched and encoded in the straightforward way."""
    query = _SELECT_PAGE.format(table=plain.table, feed_id=_FEED_IDS["email"], after=after, limit=_PAGE)
    group = "grp_0123456789abcdefghijkl"

    def text(at_ms: int) -> str:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")

    return msgspec.json.encode(
        [
            Record(id_, "bench", group, address, status, reason, source, text(at), text(got), seq)
            for id_, _, address, status, reason, source, at, got, seq in plain.query(query)
        ]
    )


def _reads(run: Run, servers: Mapping[str, ProductServer]) -> Iterator[Verdict]:
    """Yield the verdicts on look-ups, deltas and pages of both sizes, against a bare answer of the same size."""
    requests = {name: _read_requests(server) for name, server in servers.items()}
    many, look_ups = servers["many"], requests["many"]["look-up"]
    with many.deployment.bare("bare.starlette", len(many.send_once(look_ups[0]).body)) as bare:
        workloads = [Workload("look-up", "bare", bare, _CONNECTIONS, rotated(look_ups))]
        workloads += [
            Workload(kind, name, servers[name], _CONNECTIONS, rotated(of[kind]))
            for kind in ("look-up", "delta", "page")
            for name, of in requests.items()
        ]
        seen = run.loads(workloads)
    look_up, delta, bare_rate = seen["look-up", "many"], seen["delta", "many"], seen["look-up", "bare"].rate
    detail = f"{look_up.rate:.0f}/s of bare starlette {bare_rate:.0f}/s"
    yield verdict("look up one address", look_up.rate / bare_rate, "%", detail, at_least=0.28)
    title = "delta of 100 changes: server time against one look-up"
    detail = f"{delta.server_cpu_us:.0f} µs, {look_up.server_cpu_us:.0f} µs"
    yield verdict(title, delta.server_cpu_us / look_up.server_cpu_us, "x", detail, at_most=4.5)
    for kind in ("look-up", "delta", "page"):
        few_rate, many_rate = seen[kind, "few"].rate, seen[kind, "many"].rate
        title = f"{kind}: slower at {run.parameters.records} records than at {_FEW_RECORDS}"
        yield verdict(title, few_rate / many_rate, "x", f"{few_rate:.0f}/s, {many_rate:.0f}/s", at_most=1.3)


def _read_requests(server: ProductServer) -> dict[str, list[bytes]]:
    with server.caller() as caller:
        cursor = caller.end_of_feed(EMAIL, server.token)
        caller.call(People("email", seed=55).post(server.token, 100))
        delta = get(f"{EMAIL}?cursor={cursor}", server.token)
        changes = len(caller.call(delta).json()["items"])
    if changes != 100:
        raise BenchError(f"the delta holds {changes} changes instead of 100")
    known = People("email", seed=1).acts(2_000)
    return {
        "look-up": [get(f"{EMAIL}?address={act.address}", server.token) for act in known],
        "delta": [delta],
        "page": [get(f"{EMAIL}?limit=1000", server.token)],
    }


def _waits(run: Run, server: ProductServer, targets: _Targets) -> Iterator[Verdict]:
    """Yield the verdicts on the waits of others while four partners post batches without pause."""
    run.progress("four partners post batches of 10 000 without pause")
    people = People("email", seed=77)
    with server.caller() as caller:
        alone_ms = Series(_post_s(caller, server, "email", people.acts(_BATCH), "created") * 1000 for _ in range(5))
    waits = measure_during_batches(server, duration_s=run.parameters.waits_s, seed=1_000)
    for kind, wait in waits.items():
        title = f"wait of a {kind} during batches, p99 / one batch alone{server.deployment.where}"
        times = f"p50 {wait.p50_ms:.1f} ms, p99 {wait.p99_ms:.1f} ms, longest {wait.longest_ms:.1f} ms"
        detail = f"{times} of {wait.requests}; one batch {alone_ms:.0f} ms"
        at_most = targets.read if kind == "read" else None
        yield verdict(title, wait.p99_ms / alone_ms, "%", detail, at_most=at_most)


def _post_s(caller: Caller, server: ProductServer, channel: str, acts: Sequence[Act], result: str) -> float:
    answer = caller.call(post(f"/api/v1/unsubscribe/{channel}", server.token, batch_body(acts), is_minimal=False))
    # A made-up number may occur twice among a million.
    if (count := answer.json()[result]) < len(acts) * 0.97:
        raise BenchError(f"of {len(acts)} items only {count} were {result}")
    return answer.took_s
