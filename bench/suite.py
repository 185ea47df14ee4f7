"""The whole measurement: prepare the servers, run the rounds, return the verdicts and their figures."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bench import copying, feed, pages, partner, postgresql, product, rounds, scale, seed
from bench.feed import Scale
from bench.product import Deployment
from bench.rounds import Figures, Pace, Workload
from bench.rows import (
    FEW_TOKENS,
    MANY_TOKENS,
    MAX_MEMORY_MIB,
    MAX_SLOWER_WITH_MANY,
    MAX_START_RATIO,
    MIN_CLIENT_LEAD,
    ROWS,
    Row,
)
from bench.scripts import Partner, Repeat, read
from bench.server import Server, free_port
from bench.verdict import PageTime, Spread, Target, Verdict, Work, round_ratios, spread, summarize

BARE, FEW, MANY, POSTGRESQL = "bare", "stoplist", "stoplist, 1M tokens", "stoplist on PostgreSQL"
PLAIN = "bare ASGI"
CLIENT_LEAD = "client on bare ASGI / best row of Stoplist"
_REPOSITORY = Path(__file__).parent.parent

Progress = Callable[[str], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The parts to measure, and how thoroughly."""

    pace: Pace
    starts: int
    scale: Scale
    rows: tuple[Row, ...] = ROWS
    with_tokens: bool = True
    with_opt_outs: bool = True
    with_scale: bool = True
    with_pages: bool = True
    with_partner: bool = True
    copies: int = 3
    with_sqlite: bool = True
    with_postgresql: bool = True


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts, the figures of each kind of work by title, and the cost of each page by database."""

    verdicts: list[Verdict]
    works: dict[str, Work]
    pages: dict[str, list[PageTime]] = {}


class PreparedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment with its partners, and the sizes of its answers, which the bare applications imitate."""

    deployment: Deployment
    partners: list[Partner]
    bearer_status: bytes
    body_bytes: dict[str, int]


def run(options: Options, scratch: Path, progress: Progress) -> Outcome:
    """Measure the parts that `options` selects, in folders below `scratch`. Raises BenchError if that is impossible."""
    outcomes = []
    if options.with_sqlite and options.with_tokens:
        outcomes.append(_on_sqlite(options, scratch, progress))
    if options.with_sqlite and options.with_opt_outs:
        outcomes.append(Outcome(verdicts=feed.on_sqlite(options.scale, scratch, progress), works={}))
    if options.with_postgresql and options.with_tokens:
        outcomes.append(_on_postgresql(options, scratch, progress))
    if options.with_postgresql and options.with_opt_outs:
        outcomes.append(Outcome(verdicts=feed.on_postgresql(options.scale, scratch, progress), works={}))
    if options.with_postgresql and options.with_scale:
        verdicts = scale.measure(options.pace, scratch, progress)
        verdicts += copying.measure(options.scale.records, options.copies, scratch, progress)
        outcomes.append(Outcome(verdicts=verdicts, works={}))
    if options.with_pages:
        outcomes += _pages_on_both(options, scratch, progress)
    if options.with_sqlite and options.with_partner:
        verdicts = list(partner.measure(options.scale.records, options.pace.rounds, scratch, progress))
        outcomes.append(Outcome(verdicts=verdicts, works={}))
    return Outcome(
        verdicts=[verdict for outcome in outcomes for verdict in outcome.verdicts],
        works={title: work for outcome in outcomes for title, work in outcome.works.items()},
        pages={where: times for outcome in outcomes for where, times in outcome.pages.items()},
    )


def _pages_on_both(options: Options, scratch: Path, progress: Progress) -> Iterator[Outcome]:
    datasets = pages.Datasets(scratch, options.scale.records, progress)
    if options.with_sqlite:
        seen = pages.on_sqlite(options.pace, datasets, progress)
        yield Outcome(verdicts=seen.verdicts, works={}, pages={"SQLite": seen.pages})
    if options.with_postgresql:
        seen = pages.on_postgresql(options.pace, datasets, progress)
        yield Outcome(verdicts=seen.verdicts, works={}, pages={"PostgreSQL": seen.pages})


def _on_sqlite(options: Options, scratch: Path, progress: Progress) -> Outcome:
    progress("preparing a deployment on SQLite")
    few = _prepare(Deployment(scratch / "few"))
    starts = _start_ratio(few, options.starts, progress)
    many = Deployment(scratch / "many")
    shutil.copytree(few.deployment.folder, many.folder)
    progress(f"writing {FEW_TOKENS} and {MANY_TOKENS} live token pairs")
    few_highest = seed.fill(few.deployment.database, FEW_TOKENS)
    seed.fill(many.database, MANY_TOKENS)
    with ExitStack() as running:
        bare = _start_bare(running, few)
        servers = {
            FEW: running.enter_context(few.deployment.server()),
            MANY: running.enter_context(many.server()),
        }
        figures = rounds.run(
            [*_plain_workload(few, bare), *_workloads(options.rows, few, bare, servers)],
            options.pace,
            progress=progress,
            after_round=lambda: seed.trim(few.deployment.database, few_highest),
        )
        memory_mib = spread([server.rss_bytes() / 2**20 for server in servers.values()])
    verdicts = [
        *[_share(row, figures, FEW, Target(row.min_share, at_least=True)) for row in options.rows],
        *[_slower_with_many(row, figures) for row in options.rows],
        starts,
        _memory(memory_mib),
        _client_lead(options.rows, figures),
    ]
    return Outcome(verdicts=verdicts, works=_works(figures, ""))


def _on_postgresql(options: Options, scratch: Path, progress: Progress) -> Outcome:
    progress("preparing a deployment on PostgreSQL")
    with ExitStack() as running:
        settings = running.enter_context(postgresql.settings())
        deployment = Deployment(scratch / "postgresql", settings)
        deployment.folder.mkdir()
        deployment.run("migrate")
        prepared = _prepare(deployment)
        bare = _start_bare(running, prepared)
        server = running.enter_context(deployment.server())
        figures = rounds.run(
            _workloads(options.rows, prepared, bare, {POSTGRESQL: server}),
            options.pace,
            progress=progress,
            after_round=lambda: None,
        )
    verdicts = [_share(row, figures, POSTGRESQL, None) for row in options.rows]
    return Outcome(verdicts=verdicts, works=_works(figures, "PostgreSQL rounds: "))


def _prepare(deployment: Deployment) -> PreparedDeployment:
    deployment.folder.mkdir(exist_ok=True)
    with deployment.server() as server:
        partners = product.with_tokens(product.make_partners(deployment), server)
        token_bytes = product.token_answer_bytes(partners[0], server)
        bearer_status, bearer_bytes = product.bearer_answer(partners[0], server)
    return PreparedDeployment(
        deployment=deployment,
        partners=partners,
        bearer_status=bearer_status,
        body_bytes={"form_echo": token_bytes, "starlette": bearer_bytes, "asgi": bearer_bytes},
    )


def _bare_server(app: str, prepared: PreparedDeployment) -> Server:
    port = free_port()
    deployment = prepared.deployment
    command = [sys.executable, "-m", "bench.bare", app, "--port", str(port)]
    command += ["--cert", str(deployment.certificate), "--key", str(deployment.certificate_key)]
    command += ["--body-bytes", str(prepared.body_bytes[app])]
    log = deployment.folder.with_name(f"{app}.log")
    return Server(command, port=port, ca=deployment.ca, folder=_REPOSITORY, environ=os.environ, log=log)


def _start_bare(running: ExitStack, prepared: PreparedDeployment) -> dict[str, Server]:
    return {app: running.enter_context(_bare_server(app, prepared)) for app in prepared.body_bytes}


def _plain_workload(prepared: PreparedDeployment, bare: dict[str, Server]) -> Iterator[Workload]:
    """Yield the fastest possible work, which shows that the client is not the limit that is measured."""
    request = read(prepared.partners[0].access_tokens[0])
    yield Workload(
        work=PLAIN, subject=BARE, server=bare["asgi"], connections=32, script=lambda number: Repeat([request])
    )


def _workloads(
    rows: Sequence[Row], prepared: PreparedDeployment, bare: dict[str, Server], servers: dict[str, Server]
) -> Iterator[Workload]:
    for row in rows:
        yield _bare_workload(row, prepared, bare[row.bare_app])
        for subject, server in servers.items():
            yield _product_workload(row, prepared, subject, server)


def _bare_workload(row: Row, prepared: PreparedDeployment, server: Server) -> Workload:
    return Workload(
        work=row.key,
        subject=BARE,
        server=server,
        connections=row.connections,
        script=lambda number: row.bare_script(prepared.partners, number),
    )


def _product_workload(row: Row, prepared: PreparedDeployment, subject: str, server: Server) -> Workload:
    return Workload(
        work=row.key,
        subject=subject,
        server=server,
        connections=row.connections,
        script=lambda number: row.product_script(prepared.partners, number, prepared.bearer_status),
    )


def _start_ratio(prepared: PreparedDeployment, starts: int, progress: Progress) -> Verdict:
    progress(f"starting bare Starlette and Stoplist {starts} times")
    pairs_s = [(_start_s(prepared.deployment.server()), _start_s(_bare_server("starlette", prepared)))]
    # The first pair only fills the system's file cache.
    pairs_s = [
        (_start_s(prepared.deployment.server()), _start_s(_bare_server("starlette", prepared))) for _ in range(starts)
    ]
    product_s, bare_s = spread([pair[0] for pair in pairs_s]), spread([pair[1] for pair in pairs_s])
    return Verdict(
        title="start to first answer / bare Starlette",
        figure=spread([ours_s / bare_s for ours_s, bare_s in pairs_s]),
        unit="x",
        target=Target(MAX_START_RATIO, at_least=False),
        detail=f"{product_s.median * 1000:.0f} ms / {bare_s.median * 1000:.0f} ms",
    )


def _start_s(server: Server) -> float:
    with server:
        return server.start_s


def _share(row: Row, figures: Figures, subject: str, target: Target | None) -> Verdict:
    ours, bare = figures[row.key, subject], figures[row.key, BARE]
    app = row.bare_app.replace("_", " ")
    where = " (PostgreSQL)" if subject == POSTGRESQL else ""
    return Verdict(
        title=f"{row.title}{where}",
        figure=round_ratios(ours, bare),
        unit="%",
        target=target,
        detail=f"{summarize(ours).rate.median:.0f}/s of bare {app} {summarize(bare).rate.median:.0f}/s",
    )


def _slower_with_many(row: Row, figures: Figures) -> Verdict:
    few, many = figures[row.key, FEW], figures[row.key, MANY]
    return Verdict(
        title=f"{row.key}: slower with {MANY_TOKENS:,} live tokens".replace(",", " "),
        figure=round_ratios(few, many),
        unit="x",
        target=Target(MAX_SLOWER_WITH_MANY, at_least=False),
        detail=f"{summarize(few).rate.median:.0f}/s with {FEW_TOKENS}, {summarize(many).rate.median:.0f}/s",
    )


def _memory(memory_mib: Spread) -> Verdict:
    return Verdict(
        title="memory after the run",
        figure=Spread(memory_mib.greatest, memory_mib.least, memory_mib.greatest),
        unit="MiB",
        target=Target(MAX_MEMORY_MIB, at_least=False),
        detail="resident; the larger of the two servers",
    )


def _client_lead(rows: Sequence[Row], figures: Figures) -> Verdict:
    subjects = (FEW, MANY)
    best = max(
        (figures[row.key, subject] for row in rows for subject in subjects),
        key=lambda f: summarize(f).rate.median,
    )
    plain = figures[PLAIN, BARE]
    work = summarize(plain)
    return Verdict(
        title=CLIENT_LEAD,
        figure=round_ratios(plain, best),
        unit="x",
        target=Target(MIN_CLIENT_LEAD, at_least=True),
        detail=f"{work.rate.median:.0f}/s, with {work.client_cpu_share.median:.0%} of a core",
    )


def _works(figures: Figures, prefix: str) -> dict[str, Work]:
    return {f"{prefix}{work}, {subject}": summarize(loads) for (work, subject), loads in figures.items()}


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder beside the code, not in /tmp, where a durable write may cost nothing."""
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=_REPOSITORY / "bench") as folder:
        (Path(folder) / ".gitignore").write_text("*\n")
        yield Path(folder)
