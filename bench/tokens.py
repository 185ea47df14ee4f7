"""The rows on tokens, start and memory."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median

import msgspec

from bench import product, seed
from bench.product import Deployment
from bench.rounds import Figures, Run, Workload, run_workloads
from bench.scripts import (
    NOTHING,
    Partner,
    Scripts,
    client_credentials,
    get,
    reads,
    refresh,
    refresh_chains,
    repeat,
    token_requests,
)
from bench.server import Server
from bench.verdict import Verdict, compare_rates, ratios, spread, summarize, verdict

FEW_TOKENS, MANY_TOKENS = 10_000, 1_000_000
BARE, FEW, MANY, POSTGRESQL = "bare", "stoplist", "stoplist, 1M tokens", "stoplist on PostgreSQL"
PLAIN = "bare ASGI"
CLIENT_LEAD = "client on bare ASGI / best row of Stoplist"


class Row(msgspec.Struct, frozen=True):
    """One kind of work. The two functions return the scripts of the connections; by default they are the same."""

    key: str
    title: str
    connections: int
    bare_app: str
    min_share: float
    scripts: Callable[[Sequence[Partner]], Scripts]
    bare_scripts: Callable[[Sequence[Partner]], Scripts] | None = None
    status: bytes = b"200"


def _placeholder_refreshes(_: Sequence[Partner]) -> Scripts:
    return lambda _: repeat([refresh()])


ROWS = {
    row.key: row
    for row in (
        Row("client_credentials", "client_credentials, 32 connections", 32, "form_echo", 0.22, token_requests),
        Row("refresh", "refresh chains, 16 at once", 16, "form_echo", 0.18, refresh_chains, _placeholder_refreshes),
        Row("bearer", "bearer-checked, limited request, 32 connections", 32, "starlette", 0.40, reads, status=b"404"),
    )
}


class _Prepared(msgspec.Struct, frozen=True):
    """A deployment with its partners, and the sizes of its answers, which the bare applications imitate."""

    deployment: Deployment
    partners: list[Partner]
    body_bytes: dict[str, int]

    def bare(self, app: str) -> Server:
        """Return one of the bare applications."""
        return self.deployment.bare(f"bare.{app}", self.body_bytes[app])


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite, with few live tokens and with many."""
    run.progress("preparing a deployment on SQLite")
    few, many = Deployment.create(run.scratch / "few"), Deployment(run.scratch / "many")
    prepared = _prepare(few)
    start = _start(run, prepared)
    shutil.copytree(few.folder, many.folder)
    run.progress(f"writing {FEW_TOKENS} and {MANY_TOKENS} live token pairs")
    highest = seed.fill(few.database, FEW_TOKENS)
    seed.fill(many.database, MANY_TOKENS)
    with ExitStack() as running:
        servers = {FEW: running.enter_context(few.server()), MANY: running.enter_context(many.server())}
        figures = _measure(run, running, prepared, servers, lambda: seed.trim(few.database, highest), with_plain=True)
        memory_mib = spread(server.rss_mib() for server in servers.values())
    run.add_works(figures)
    for row in _rows(run):
        yield _share(row, figures, FEW, row.title, at_least=row.min_share)
    for row in _rows(run):
        title = f"{row.key}: slower with {MANY_TOKENS:,} live tokens".replace(",", " ")
        loads = figures[row.key, FEW], figures[row.key, MANY]
        yield compare_rates(title, "x", *loads, f"{{}} with {FEW_TOKENS}, {{}}", at_most=1.5)
    yield start
    larger = msgspec.structs.replace(memory_mib, median=memory_mib.greatest)
    yield verdict("memory after the run", larger, "MiB", "resident; the larger of the two servers", at_most=120)
    yield _client_lead(figures)


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL."""
    run.progress("preparing a deployment on PostgreSQL")
    with ExitStack() as running:
        deployment = running.enter_context(product.on_postgresql(run.scratch / "postgresql"))
        prepared = _prepare(deployment)
        servers = {POSTGRESQL: running.enter_context(deployment.server())}
        figures = _measure(run, running, prepared, servers, lambda: None)
    run.add_works(figures, "PostgreSQL rounds: ")
    for row in _rows(run):
        yield _share(row, figures, POSTGRESQL, f"{row.title} (PostgreSQL)")


def _rows(run: Run) -> list[Row]:
    return [row for row in ROWS.values() if run.only in (None, row.key)]


def _prepare(deployment: Deployment) -> _Prepared:
    with deployment.server() as server:
        partners = product.with_tokens(server)
        token = server.send_once(client_credentials(partners[0])).require()
        nothing = server.send_once(get(NOTHING, partners[0].access_tokens[0])).require(b"404")
    body_bytes = {"form_echo": len(token.body), "starlette": len(nothing.body), "asgi": len(nothing.body)}
    return _Prepared(deployment, partners, body_bytes)


def _measure(
    run: Run,
    running: ExitStack,
    prepared: _Prepared,
    servers: Mapping[str, Server],
    after_round: Callable[[], None],
    *,
    with_plain: bool = False,
) -> Figures:
    bare = {app: running.enter_context(prepared.bare(app)) for app in prepared.body_bytes}
    workloads = []
    if with_plain:
        # The fastest possible work shows that the client is not the limit that is measured.
        request = get(NOTHING, prepared.partners[0].access_tokens[0])
        workloads.append(Workload(PLAIN, BARE, bare["asgi"], 32, lambda _: repeat([request])))
    for row in _rows(run):
        scripts = row.scripts(prepared.partners)
        bare_scripts = row.bare_scripts(prepared.partners) if row.bare_scripts else scripts
        workloads.append(Workload(row.key, BARE, bare[row.bare_app], row.connections, bare_scripts))
        for subject, server in servers.items():
            workloads.append(Workload(row.key, subject, server, row.connections, scripts, row.status))
    return run_workloads(run, workloads, after_round=after_round)


def _start(run: Run, prepared: _Prepared) -> Verdict:
    def start_both(_: int) -> dict[str, float]:
        return {"stoplist": _start_s(prepared.deployment.server()), BARE: _start_s(prepared.bare("starlette"))}

    # The first pair only fills the system's file cache.
    seen_s = run.rounds(run.parameters.starts, start_both, "start", warm_up=True)
    detail = " / ".join(f"{median(seconds) * 1000:.0f} ms" for seconds in seen_s.values())
    title = "start to first answer / bare Starlette"
    return verdict(title, ratios(seen_s["stoplist"], seen_s[BARE]), "x", detail, at_most=3.0)


def _start_s(server: Server) -> float:
    with server:
        return server.start_s


def _share(row: Row, figures: Figures, subject: str, title: str, *, at_least: float | None = None) -> Verdict:
    words = f"{{}} of bare {row.bare_app.replace('_', ' ')} {{}}"
    return compare_rates(title, "%", figures[row.key, subject], figures[row.key, BARE], words, at_least=at_least)


def _client_lead(figures: Figures) -> Verdict:
    product_loads = [loads for (_, subject), loads in figures.items() if subject != BARE]
    best = max(product_loads, key=lambda loads: summarize(loads).rate.median)
    plain = figures[PLAIN, BARE]
    words = f"{{}}, with {summarize(plain).client_cpu_share.median:.0%} of a core"
    return compare_rates(CLIENT_LEAD, "x", plain, best, words, at_least=1.5)
