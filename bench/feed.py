"""The rows on opt-outs at a million records: submitting, looking up and following, each against a baseline."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from bench import product
from bench.baselines import Baseline, plain_postgresql, plain_sqlite
from bench.latency import measure_during_batches
from bench.load import require_right
from bench.product import Deployment, ProductServer
from bench.rounds import Figures, Run, Workload, run_workloads
from bench.sample_people import Act, People, batch_body
from bench.scripts import EMAIL, get, post, rotated
from bench.server import BenchError, Caller
from bench.verdict import Spread, Verdict, compare_rates, compare_times, ratios, spread, verdict

_CHANNELS = {"email": 1, "phone": 3}
_ORGANIZATION_ID, _CHANNELS_AN_ORGANIZATION = 1, 16
_SMALL_BATCH, _BATCH, _FEW_RECORDS = 1_000, 10_000, 10_000
_PAGE = 10_000
_CONNECTIONS = 16
# Several in a row, so that work put off until after an answer is measured with the next one.
_BATCHES_TOGETHER = 3


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite."""
    few, many = (Deployment.create(run.scratch / f"feed-{name}") for name in ("few", "many"))
    _fill(run, few, _FEW_RECORDS)
    _fill(run, many, run.parameters.records)
    with plain_sqlite(many.database, run.scratch / "baseline.db") as baseline, many.server() as server:
        yield from _posts(run, server, baseline, at_least=0.6, again_at_least=2.2)
        yield _pages(run, server, baseline, at_least=0.7)
    with few.server() as few_server, many.server() as server:
        yield from _reads(run, {"few": few_server, "many": server})
        yield _internationalized(run, server)
        yield from _waits(run, server, read_at_most=0.1)
        yield verdict("memory after reads, pages and batches", [server.rss_mib()], "MiB", "resident", at_most=220)


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL."""
    with product.on_postgresql(run.scratch / "feed-postgresql") as deployment:
        _fill(run, deployment, run.parameters.records)
        with plain_postgresql(deployment.database_url) as baseline, deployment.server() as server:
            yield from _posts(run, server, baseline, at_least=0.4, again_at_least=1.5)
            yield _pages(run, server, baseline, at_least=0.5)
            yield from _waits(run, server, read_at_most=0.2)


def _fill(run: Run, deployment: Deployment, records: int) -> None:
    """Fill each feed with `records` records, through the API."""
    with deployment.server() as server, server.caller() as caller:
        for channel in _CHANNELS:
            run.progress(f"filling {deployment.folder.name}: {records} records, {channel}")
            people = People(channel, seed=1)
            for _ in range(records // _BATCH):
                caller.call(post(_path(channel), server.token, batch_body(people.acts(_BATCH))))
    os.sync()


def _posts(
    run: Run, server: ProductServer, baseline: Baseline, *, at_least: float, again_at_least: float
) -> Iterator[Verdict]:
    """Yield the verdicts on new batches, against the same rows inserted directly, and on the same batches again."""
    for channel, size in itertools.product(_CHANNELS, (_SMALL_BATCH, _BATCH)):
        people = People(channel, seed=size)

        def post_batches(_: int, channel: str = channel, size: int = size, people: People = people) -> dict[str, float]:
            batches = [people.acts(size) for _ in range(_BATCHES_TOGETHER)]
            with server.caller() as caller:
                return {
                    "new": sum(_post_s(caller, server, channel, acts, "created") for acts in batches),
                    "again": sum(_post_s(caller, server, channel, acts, "unchanged") for acts in batches),
                    "plain": sum(baseline.insert(acts, _feed_id(channel)) for acts in batches),
                }

        seen_s = run.rounds(run.parameters.rounds, post_batches, f"{channel} {size}", warm_up=True)
        new_s, again_s, plain_s = seen_s["new"], seen_s["again"], seen_s["plain"]
        title = f"POST of {size} new items, {channel}{server.deployment.where}"
        yield compare_times(title, (new_s, plain_s), "{} of {} for the rows alone", _one_batch, at_least=at_least)
        title = f"the same {size} again, {channel}{server.deployment.where}"
        detail = f"{_one_batch(median(again_s))} after {_one_batch(median(new_s))}"
        yield verdict(title, ratios(new_s, again_s), "x", detail, at_least=again_at_least)


def _internationalized(run: Run, server: ProductServer) -> Verdict:
    """Return the verdict on new batches whose items each have an internationalized domain of their own."""
    people = People("email", seed=91)

    def cpu_s(acts: Sequence[Act], caller: Caller) -> float:
        before_s = server.cpu_s()
        _post_s(caller, server, "email", acts, "created")
        return server.cpu_s() - before_s

    def batches(_: int) -> dict[str, float]:
        seen_s = {"plain": 0.0, "other": 0.0}
        with server.caller() as caller:
            for _ in range(_BATCHES_TOGETHER):
                acts = people.acts(_BATCH)
                seen_s["plain"] += cpu_s(acts, caller)
                others = [
                    msgspec.structs.replace(act, address=f"a@b\u00fc{act.address.replace('@', '.')}") for act in acts
                ]
                seen_s["other"] += cpu_s(others, caller)
        return seen_s

    seen_s = run.rounds(run.parameters.rounds, batches, "internationalized domains", warm_up=True)
    detail = f"{_one_batch(median(seen_s['other']))}, {_one_batch(median(seen_s['plain']))} of processor time"
    title = f"{_BATCH} different internationalized domains: server time against plain items"
    return verdict(title, ratios(seen_s["other"], seen_s["plain"]), "x", detail, at_most=4.0)


def _pages(run: Run, server: ProductServer, baseline: Baseline, *, at_least: float) -> Verdict:
    """Return the verdict on the first full read, against fetching and encoding the same pages."""
    run.progress("reading the feed in pages of 10 000")
    after, ours_s, plain_s = 0, [], []
    with server.caller() as caller:
        for page, took_s in itertools.islice(_feed_pages(caller, server.token), run.parameters.pages):
            if len(page["items"]) < _PAGE:
                break
            ours_s.append(took_s)
            plain_s.append(baseline.page_s(_feed_id("email"), after, _PAGE))
            after = page["items"][-1]["seq"]
    title = f"pages of {_PAGE} of the first full read{server.deployment.where}"
    words = f"{{}} of {{}} for fetch and encode, {len(ours_s)} pages"
    return compare_times(title, (ours_s, plain_s), words, _ms, at_least=at_least)


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
        seen = run_workloads(run, workloads)
    require_right(load for loads in seen.values() for load in loads)
    yield from _read_verdicts(seen, run.parameters.records)


def _read_verdicts(seen: Figures, records: int) -> Iterator[Verdict]:
    look_up, bare, delta = seen["look-up", "many"], seen["look-up", "bare"], seen["delta", "many"]
    yield compare_rates("look up one address", "%", look_up, bare, "{} of bare starlette {}", at_least=0.28)
    delta_us, look_up_us = ([load.server_cpu_us for load in loads] for loads in (delta, look_up))
    title = "delta of 100 changes: server time against one look-up"
    detail = f"{delta_us[0]:.0f} µs, {look_up_us[0]:.0f} µs"
    yield verdict(title, ratios(delta_us, look_up_us), "x", detail, at_most=4.5)
    for kind in ("look-up", "delta", "page"):
        title = f"{kind}: slower at {records} records than at {_FEW_RECORDS}"
        yield compare_rates(title, "x", seen[kind, "few"], seen[kind, "many"], "{}, {}", at_most=1.3)


def _read_requests(server: ProductServer) -> dict[str, list[bytes]]:
    with server.caller() as caller:
        for page, _ in _feed_pages(caller, server.token):
            cursor = page["next_cursor"]
        caller.call(post(EMAIL, server.token, batch_body(People("email", seed=55).acts(100))))
        delta = get(f"{EMAIL}?cursor={cursor}", server.token)
        changes = len(json.loads(caller.call(delta).body)["items"])
    if changes != 100:
        raise BenchError(f"the delta holds {changes} changes instead of 100")
    known = People("email", seed=1).acts(2_000)
    return {
        "look-up": [get(f"{EMAIL}?address={act.address}", server.token) for act in known],
        "delta": [delta],
        "page": [get(f"{EMAIL}?limit=1000", server.token)],
    }


def _waits(run: Run, server: ProductServer, *, read_at_most: float) -> Iterator[Verdict]:
    """Yield the verdicts on the waits of others while four partners post batches without pause."""
    run.progress("four partners post batches of 10 000 without pause")
    people = People("email", seed=77)
    with server.caller() as caller:
        alone = spread(_post_s(caller, server, "email", people.acts(_BATCH), "created") for _ in range(5))
    waits = measure_during_batches(server, duration_s=run.parameters.waits_s, seed=1_000)
    for kind, wait in waits.items():
        times = f"p50 {wait.p50_ms:.1f} ms, p99 {wait.p99_ms:.1f} ms, longest {wait.longest_ms:.1f} ms"
        yield verdict(
            f"wait of a {kind} during batches, p99 / one batch alone{server.deployment.where}",
            Spread(*(wait.p99_ms / 1000 / one_s for one_s in (alone.median, alone.greatest, alone.least))),
            "%",
            f"{times} of {wait.requests}; one batch {alone.median * 1000:.0f} ms",
            at_most=read_at_most if kind == "read" else None,
        )


def _feed_pages(caller: Caller, token: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield each page of the feed, and the seconds that it took."""
    cursor, has_more = "", True
    while has_more:
        answer = caller.call(get(f"{EMAIL}?limit={_PAGE}{cursor}", token))
        page = json.loads(answer.body)
        yield page, answer.took_s
        cursor, has_more = f"&cursor={page['next_cursor']}", page["has_more"]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _one_batch(seconds: float) -> str:
    return _ms(seconds / _BATCHES_TOGETHER)


def _post_s(caller: Caller, server: ProductServer, channel: str, acts: Sequence[Act], result: str) -> float:
    answer = caller.call(post(_path(channel), server.token, batch_body(acts), is_minimal=False))
    # A made-up number may occur twice among a million.
    if (count := json.loads(answer.body)[result]) < len(acts) * 0.97:
        raise BenchError(f"of {len(acts)} items only {count} were {result}")
    return answer.took_s


def _feed_id(channel: str) -> int:
    return _ORGANIZATION_ID * _CHANNELS_AN_ORGANIZATION + _CHANNELS[channel]


def _path(channel: str) -> str:
    return f"/api/v1/unsubscribe/{channel}"
