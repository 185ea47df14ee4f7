"""Opt-outs at a million records: submitting, looking up and following, each against a baseline of the same run."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench import postgresql, product, rounds
from bench.baselines import Baseline, PlainPostgresql, PlainSqlite
from bench.caller import Caller
from bench.latency import Latency, measure_during_batches
from bench.load import Load
from bench.product import Deployment
from bench.rounds import Pace, Workload
from bench.sample_people import Act, People, batch_body, rows
from bench.scripts import Partner, Repeat, get
from bench.server import BenchError, Server, free_port, send_once
from bench.verdict import Spread, Target, Verdict, round_ratios, spread

CHANNELS = {"email": 1, "phone": 3}
_ORGANIZATION_ID, _CHANNELS_AN_ORGANIZATION = 1, 16
_BATCH, _SMALL_BATCH, _FEW_RECORDS = 10_000, 1_000, 10_000
_PAGE = 10_000
_CONNECTIONS = 16
_BATCHES_TOGETHER = 3
_REPOSITORY = Path(__file__).parent.parent

Progress = Callable[[str], None]


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of work that is measured."""

    pace: Pace
    records: int
    rounds: int
    pages: int
    waits_s: float


class _FilledDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment with filled feeds."""

    deployment: Deployment
    partners: list[Partner]


def on_sqlite(scale: Scale, scratch: Path, progress: Progress) -> list[Verdict]:
    """Return the verdicts on SQLite."""
    few, many = Deployment(scratch / "feed-few"), Deployment(scratch / "feed-many")
    filled = {
        subject: _fill(*of, progress)
        for subject, of in {"few": (few, _FEW_RECORDS), "many": (many, scale.records)}.items()
    }
    verdicts: list[Verdict] = []
    with PlainSqlite(many.database, scratch / "baseline.db") as baseline, many.server() as server:
        token = _token(filled["many"].partners[0], server)
        verdicts += _posts(scale, server, token, baseline, progress, share=0.6, where="")
        verdicts += _pages(scale, server, token, baseline, progress, share=0.7, where="")
    with ExitStack() as running:
        servers = {name: running.enter_context(one.deployment.server()) for name, one in filled.items()}
        verdicts += _reads(scale, running, filled, servers, progress)
        verdicts += _latencies(scale, filled["many"], servers["many"], progress, where="")
        memory_mib = servers["many"].rss_bytes() / 2**20
    verdicts.append(
        _verdict("memory after reads, pages and batches", [memory_mib], "MiB", Target(200, at_least=False), "resident")
    )
    return verdicts


def on_postgresql(scale: Scale, scratch: Path, progress: Progress) -> list[Verdict]:
    """Return the verdicts on PostgreSQL."""
    with ExitStack() as running:
        settings = running.enter_context(postgresql.settings())
        deployment = Deployment(scratch / "feed-postgresql", settings)
        deployment.folder.mkdir()
        deployment.run("migrate")
        filled = _fill(deployment, scale.records, progress)
        baseline = running.enter_context(PlainPostgresql(settings["STOPLIST_DATABASE_URL"]))
        server = running.enter_context(deployment.server())
        token = _token(filled.partners[0], server)
        where = " (PostgreSQL)"
        return [
            *_posts(scale, server, token, baseline, progress, share=0.45, where=where),
            *_pages(scale, server, token, baseline, progress, share=0.5, where=where),
            *_latencies(scale, filled, server, progress, where=where),
        ]


def _fill(deployment: Deployment, records: int, progress: Progress) -> _FilledDeployment:
    """Fill each feed with `records` records, through the API."""
    deployment.folder.mkdir(exist_ok=True)
    with deployment.server() as server:
        partners = product.make_partners(deployment)
        with Caller(port=server.port, ca=server.ca, access_token=_token(partners[0], server)) as caller:
            for channel in CHANNELS:
                progress(f"filling {deployment.folder.name}: {records} records, {channel}")
                people = People(channel, seed=1)
                for _ in range(records // _BATCH):
                    caller.post(_path(channel), batch_body(people.acts(_BATCH)), prefer="return=minimal")
    os.sync()
    return _FilledDeployment(deployment=deployment, partners=partners)


def _posts(
    scale: Scale, server: Server, token: str, baseline: Baseline, progress: Progress, *, share: float, where: str
) -> Iterator[Verdict]:
    """Yield the verdicts on new batches, against the same rows inserted directly, and on the same batches again."""
    with Caller(port=server.port, ca=server.ca, access_token=token) as caller:
        for channel in CHANNELS:
            for size in (_SMALL_BATCH, _BATCH):
                people = People(channel, seed=size)
                new_s: list[float] = []
                again_s: list[float] = []
                plain_s: list[float] = []
                for number in range(scale.rounds + 1):
                    # Several in a row, so that work put off until after an answer is measured with the next one.
                    batches = [people.acts(size) for _ in range(_BATCHES_TOGETHER)]
                    bodies = [batch_body(acts) for acts in batches]
                    seconds = (
                        sum(_post_s(caller, channel, body, "created", size) for body in bodies),
                        sum(_post_s(caller, channel, body, "unchanged", size) for body in bodies),
                        sum(_insert_s(baseline, channel, acts) for acts in batches),
                    )
                    progress(
                        f"round {number}/{scale.rounds}  {channel} {size}: {seconds[0]:.3f} s, plain {seconds[2]:.3f} s"
                    )
                    if number:
                        for kept, one in zip((new_s, again_s, plain_s), seconds, strict=True):
                            kept.append(one)
                yield _verdict(
                    f"POST of {size} new items, {channel}{where}",
                    [plain / new for plain, new in zip(plain_s, new_s, strict=True)],
                    "%",
                    Target(share, at_least=True),
                    f"{_format_ms(new_s)} of {_format_ms(plain_s)} for the rows alone",
                )
                yield _verdict(
                    f"the same {size} again, {channel}{where}",
                    [new / again for new, again in zip(new_s, again_s, strict=True)],
                    "x",
                    Target(5.0, at_least=True),
                    f"{_format_ms(again_s)} after {_format_ms(new_s)}",
                )


def _pages(
    scale: Scale, server: Server, token: str, baseline: Baseline, progress: Progress, *, share: float, where: str
) -> Iterator[Verdict]:
    """Yield the verdict on the first full read, against fetching and encoding the same pages."""
    progress("reading the feed in pages of 10 000")
    feed_id, cursor, after = _feed_id("email"), "", 0
    ours_s: list[float] = []
    plain_s: list[float] = []
    with Caller(port=server.port, ca=server.ca, access_token=token) as caller:
        for _ in range(scale.pages):
            answered = caller.get(f"{_path('email')}?limit={_PAGE}{cursor}")
            page = json.loads(answered.body)
            if len(page["items"]) < _PAGE:
                break
            ours_s.append(answered.took_s)
            plain_s.append(baseline.page_s(feed_id, after, _PAGE))
            cursor, after = f"&cursor={page['next_cursor']}", page["items"][-1]["seq"]
    yield _verdict(
        f"pages of {_PAGE} of the first full read{where}",
        [plain / ours for plain, ours in zip(plain_s, ours_s, strict=True)],
        "%",
        Target(share, at_least=True),
        f"{_format_ms(ours_s, 1)} of {_format_ms(plain_s, 1)} for fetch and encode, {len(ours_s)} pages",
    )


def _reads(
    scale: Scale,
    running: ExitStack,
    filled: dict[str, _FilledDeployment],
    servers: dict[str, Server],
    progress: Progress,
) -> Iterator[Verdict]:
    """Yield the verdicts on look-ups, deltas and pages of both sizes, against a bare answer of the same size."""
    requests = {name: _read_requests(one, servers[name]) for name, one in filled.items()}
    size = len(send_once(requests["many"]["look-up"][0], port=servers["many"].port, ca=servers["many"].ca).body)
    bare = running.enter_context(_bare_server(filled["many"].deployment, size))
    workloads = [
        Workload(work=kind, subject=name, server=servers[name], connections=_CONNECTIONS, script=_repeat(of[kind]))
        for kind in ("look-up", "delta", "page")
        for name, of in requests.items()
    ]
    workloads.insert(
        0,
        Workload(
            work="look-up",
            subject="bare",
            server=bare,
            connections=_CONNECTIONS,
            script=_repeat(requests["many"]["look-up"]),
        ),
    )
    seen = rounds.run(workloads, scale.pace, progress=progress, after_round=lambda: None)
    for loads in seen.values():
        if failures := [one.first_failure for one in loads if one.failures]:
            raise BenchError(f"a read was answered wrongly: {failures[0]}")
    yield Verdict(
        title="look up one address",
        figure=round_ratios(seen["look-up", "many"], seen["look-up", "bare"]),
        unit="%",
        target=Target(0.35, at_least=True),
        detail=f"{_rate(seen['look-up', 'many'])} of bare starlette {_rate(seen['look-up', 'bare'])}",
    )
    yield _verdict(
        "delta of 100 changes: server time against one look-up",
        [
            delta.server_cpu_us / look_up.server_cpu_us
            for delta, look_up in zip(seen["delta", "many"], seen["look-up", "many"], strict=True)
        ],
        "x",
        Target(3.0, at_least=False),
        f"{seen['delta', 'many'][0].server_cpu_us:.0f} µs, {seen['look-up', 'many'][0].server_cpu_us:.0f} µs",
    )
    for kind in ("look-up", "delta", "page"):
        yield Verdict(
            title=f"{kind}: slower at {scale.records} records than at {_FEW_RECORDS}",
            figure=round_ratios(seen[kind, "few"], seen[kind, "many"]),
            unit="x",
            target=Target(1.3, at_least=False),
            detail=f"{_rate(seen[kind, 'few'])}, {_rate(seen[kind, 'many'])}",
        )


def _latencies(
    scale: Scale, filled: _FilledDeployment, server: Server, progress: Progress, *, where: str
) -> Iterator[Verdict]:
    """Yield the verdicts on the waits of others while four partners post batches without pause."""
    progress("four partners post batches of 10 000 without pause")
    tokens = [_token(partner, server) for partner in filled.partners]
    people = People("email", seed=77)
    with Caller(port=server.port, ca=server.ca, access_token=tokens[0]) as caller:
        alone_s = [_post_s(caller, "email", batch_body(people.acts(_BATCH)), "created", _BATCH) for _ in range(5)]
    latencies = measure_during_batches(filled.partners, tokens, server, duration_s=scale.waits_s, seed=1_000)
    for kind, latency in latencies.items():
        batch = spread(alone_s)
        yield Verdict(
            title=f"wait of a {kind} during batches, p99 / one batch alone{where}",
            figure=Spread(*(latency.p99_ms / 1000 / one for one in (batch.median, batch.greatest, batch.least))),
            unit="%",
            target=Target(0.1, at_least=False) if kind == "read" else None,
            detail=f"{_format_latency(latency)}; one batch {batch.median * 1000:.0f} ms",
        )


def _format_latency(latency: Latency) -> str:
    times = f"p50 {latency.p50_ms:.1f} ms, p99 {latency.p99_ms:.1f} ms, longest {latency.longest_ms:.1f} ms"
    return f"{times} of {latency.requests}"


def _read_requests(filled: _FilledDeployment, server: Server) -> dict[str, list[bytes]]:
    token = _token(filled.partners[0], server)
    known = People("email", seed=1).acts(2_000)
    with Caller(port=server.port, ca=server.ca, access_token=token) as caller:
        cursor = _last_cursor(caller)
        caller.post(_path("email"), batch_body(People("email", seed=55).acts(100)))
        changed = json.loads(caller.get(f"{_path('email')}?cursor={cursor}").body)["items"]
    if len(changed) != 100:
        raise BenchError(f"the delta holds {len(changed)} changes instead of 100")
    return {
        "look-up": [get(f"{_path('email')}?address={act.address}", token) for act in known],
        "delta": [get(f"{_path('email')}?cursor={cursor}", token)],
        "page": [get(f"{_path('email')}?limit=1000", token)],
    }


def _last_cursor(caller: Caller) -> str:
    page = json.loads(caller.get(f"{_path('email')}?limit={_PAGE}").body)
    while page["has_more"]:
        page = json.loads(caller.get(f"{_path('email')}?limit={_PAGE}&cursor={page['next_cursor']}").body)
    return str(page["next_cursor"])


def _bare_server(deployment: Deployment, body_bytes: int) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "bench.bare", "starlette", "--port", str(port), "--body-bytes", str(body_bytes)]
    command += ["--cert", str(deployment.certificate), "--key", str(deployment.certificate_key)]
    log = deployment.folder.with_name("bare-look-up.log")
    return Server(command, port=port, ca=deployment.ca, folder=_REPOSITORY, environ=os.environ, log=log)


def _repeat(requests: list[bytes]) -> Callable[[int], Repeat]:
    """Return a script for each connection, with the requests in a different order."""
    return lambda number: Repeat([*requests[number:], *requests[:number]])


def _post_s(caller: Caller, channel: str, body: bytes, result: str, count: int) -> float:
    answered = caller.post(_path(channel), body)
    answer = json.loads(answered.body)
    # A made-up number may occur twice among a million.
    if answer[result] < count * 0.97:
        raise BenchError(f"of {count} items only {answer[result]} were {result}")
    return answered.took_s


def _insert_s(baseline: Baseline, channel: str, acts: Sequence[Act]) -> float:
    feed_id = _feed_id(channel)
    unique = list({act.address: act for act in acts}.values())
    return baseline.insert(rows(unique, feed_id=feed_id, after=baseline.head(feed_id)))


def _token(partner: Partner, server: Server) -> str:
    return product.with_tokens([partner], server, count=1)[0].access_tokens[0]


def _path(channel: str) -> str:
    return f"/api/v1/unsubscribe/{channel}"


def _feed_id(channel: str) -> int:
    return _ORGANIZATION_ID * _CHANNELS_AN_ORGANIZATION + CHANNELS[channel]


def _rate(loads: Sequence[Load]) -> str:
    return f"{spread([one.rate for one in loads]).median:.0f}/s"


def _format_ms(seconds: Sequence[float], together: int = _BATCHES_TOGETHER) -> str:
    return f"{spread(seconds).median / together * 1000:.0f} ms"


def _verdict(title: str, figures: Sequence[float], unit: str, target: Target, detail: str) -> Verdict:
    return Verdict(title=title, figure=spread(figures), unit=unit, target=target, detail=detail)
