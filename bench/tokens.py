"""The rows on tokens, start and memory."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from bench import seed
from bench.product import SQLITE, DatabaseKind, Deployment, deployed
from bench.rounds import Run, Workload, Works
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
from bench.verdict import Verdict, verdict

BARE = "bare"
CLIENT_LEAD = "client on bare ASGI / best row of Stoplist"
_FEW_TOKENS, _MANY_TOKENS = 10_000, 1_000_000
_FEW, _MANY = "stoplist", "stoplist, 1M tokens"
_PLAIN = "bare ASGI"


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

    def workloads(
        self, partners: Sequence[Partner], bare: Mapping[str, Server], servers: Mapping[str, Server]
    ) -> Iterator[Workload]:
        """Yield this kind of work at the bare application, then at each of the servers."""
        scripts = self.scripts(partners)
        bare_scripts = self.bare_scripts(partners) if self.bare_scripts else scripts
        yield Workload(self.key, BARE, bare[self.bare_app], self.connections, bare_scripts)
        for subject, server in servers.items():
            yield Workload(self.key, subject, server, self.connections, scripts, self.status)


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


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts: on SQLite with few live tokens and with many, and on start and memory."""
    rows = [row for row in ROWS.values() if run.only in (None, row.key)]
    subject, table = (_FEW, "") if database is SQLITE else ("stoplist on PostgreSQL", "PostgreSQL rounds: ")
    with deployed(database, run.scratch / f"tokens-{database.name}") as deployment, ExitStack() as running:
        with deployment.server() as server:
            partners = server.with_tokens()
            nothing = get(NOTHING, partners[0].access_tokens[0])
            token_bytes = len(server.send_once(client_credentials(partners[0])).require().body)
            nothing_bytes = len(server.send_once(nothing).require(b"404").body)
        sizes = {"form_echo": token_bytes, "starlette": nothing_bytes, "asgi": nothing_bytes}
        bare = {app: deployment.bare(f"bare.{app}", size) for app, size in sizes.items()}
        deployments, trim = {subject: deployment}, lambda: None
        if database is SQLITE:
            # The first pair only fills the system's file cache.
            starts = {"stoplist": deployment.server().start_s, BARE: bare["starlette"].start_s}
            starts_s = run.in_turn(starts, "start", count=run.parameters.starts)
            deployments[_MANY] = msgspec.structs.replace(deployment, folder=run.scratch / "tokens-many")
            trim = _fill(run, deployment, deployments[_MANY])
        servers = {name: running.enter_context(one.server()) for name, one in deployments.items()}
        for app in bare.values():
            running.enter_context(app)
        # The fastest possible work shows that the client is not the limit that is measured.
        plain = [Workload(_PLAIN, BARE, bare["asgi"], 32, lambda _: repeat([nothing]))] if database is SQLITE else []
        workloads = (workload for row in rows for workload in row.workloads(partners, bare, servers))
        works = run.loads([*plain, *workloads], table=table, after_round=trim)
        memory_mib = sorted(server.rss_mib() for server in servers.values())
    for row in rows:
        ours, other = works[row.key, subject].rate, works[row.key, BARE].rate
        detail = f"{ours:.0f}/s of bare {row.bare_app.replace('_', ' ')} {other:.0f}/s"
        at_least = row.min_share if database is SQLITE else None
        yield verdict(f"{row.title}{deployment.where}", ours / other, "%", detail, at_least=at_least)
    if database is SQLITE:
        yield from _many_tokens(rows, works)
        ours_ms, bare_ms = (one_s * 1000 for one_s in starts_s.values())
        detail = f"{ours_ms:.0f} ms / {bare_ms:.0f} ms"
        yield verdict("start to first answer / bare Starlette", ours_ms / bare_ms, "x", detail, at_most=3.0)
        detail = "resident; the larger of the two servers"
        yield verdict("memory after the run", [*memory_mib, memory_mib[-1]], "MiB", detail, at_most=120)
        yield _client_lead(works)


def _fill(run: Run, few: Deployment, many: Deployment) -> Callable[[], None]:
    """Copy the one to the other, and give both live tokens. Return what removes those that a round adds."""
    shutil.copytree(few.folder, many.folder)
    run.progress(f"writing {_FEW_TOKENS} and {_MANY_TOKENS} live token pairs")
    highest = seed.fill(few.file, _FEW_TOKENS)
    seed.fill(many.file, _MANY_TOKENS)
    return lambda: seed.trim(few.file, highest)


def _many_tokens(rows: Sequence[Row], works: Works) -> Iterator[Verdict]:
    for row in rows:
        few, many = works[row.key, _FEW].rate, works[row.key, _MANY].rate
        title = f"{row.key}: slower with {_MANY_TOKENS:,} live tokens".replace(",", " ")
        yield verdict(title, few / many, "x", f"{few:.0f}/s with {_FEW_TOKENS}, {many:.0f}/s", at_most=1.5)


def _client_lead(works: Works) -> Verdict:
    plain = works[_PLAIN, BARE]
    best = max((work for (_, subject), work in works.items() if subject != BARE), key=lambda work: work.rate.median)
    detail = f"{plain.rate:.0f}/s, with {plain.client_cpu_share:.0%} of a core"
    return verdict(CLIENT_LEAD, plain.rate / best.rate, "x", detail, at_least=1.5)
