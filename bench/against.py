"""The rows of `--against REVISION`: this working tree against another revision of this repository, in turns.

The figure is the processor time of the server for one request, all threads together, because elapsed time depends on
what else the machine does. Both servers run throughout; in each turn each does the same work once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from bench import load, product
from bench.load import require_right
from bench.product import Deployment, ProductServer
from bench.rounds import Run
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, Partner, Scripts, get, post, reads, refresh_chains, token_requests
from bench.server import BenchError
from bench.verdict import Verdict, ratios, verdict
from tests.services import revisions

_BATCH, _FILLED_BATCHES = 10_000, 10
# The kernel counts processor time in hundredths of a second: that many together keep the error below 3 %.
_BATCHES_A_TURN, _PAGES_A_TURN = 10, 30
LOOK_UP = "look-up with a record"
_CONNECTIONS = {"refresh chain": 16}
_OURS, _THEIRS = "this", "that"
# What the working tree may take of the time of the revision before docs/decisions/0019, over plain HTTP.
_BASELINE = "8be310d"
_REACH = {
    f"{work} ({database}, against {_BASELINE}{'' if 'batch' in work else ', plain'})": at_most
    for database, limits in {
        "SQLite": {
            "look-up without a record": 0.70,
            LOOK_UP: 0.75,
            "bearer and limit alone": 0.75,
            "client_credentials": 0.72,
            "refresh chain": 0.88,
            f"batch of {_BATCH}, new": 1.15,
            f"batch of {_BATCH}, again": 1.05,
        },
        "PostgreSQL": {"look-up without a record": 0.72, "client_credentials": 0.72, "refresh chain": 0.76},
    }.items()
    for work, at_most in limits.items()
}

Servers = Mapping[str, ProductServer]


def measure(run: Run, revision: str) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite and PostgreSQL: behind a trusted proxy, and over TLS."""
    run.progress(f"building {revision}")
    try:
        name, command = revisions.build(revision)
    except revisions.Unavailable as error:
        raise BenchError(str(error)) from error
    for where in ("SQLite", "PostgreSQL"):
        with deployments_of_both(run, where, (str(command),)) as deployments:
            yield from _compare(run, deployments, f"{where}, against {name}")


@contextmanager
def deployments_of_both(run: Run, where: str, command: Sequence[str]) -> Iterator[dict[str, Deployment]]:
    """Yield a deployment of the working tree and one of another `stoplist`, each with a database of its own."""
    with ExitStack() as running:
        deployments = {}
        for side, other in ((_OURS, None), (_THEIRS, command)):
            folder = run.scratch / f"{side}-{where}"
            deployments[side] = (
                Deployment.create(folder, command=other)
                if where == "SQLite"
                else running.enter_context(product.on_postgresql(folder, command=other))
            )
        yield deployments


def _compare(run: Run, deployments: Mapping[str, Deployment], where: str) -> Iterator[Verdict]:
    for tls in (False, True):
        with ExitStack() as running:
            servers = {side: running.enter_context(one.server(tls=tls)) for side, one in deployments.items()}
            if not tls:
                yield from compare_batches(run, servers, where)
                yield compare_pages(run, servers, where)
            yield from compare_requests(run, servers, f"{where}, {'TLS' if tls else 'plain'}")
            if tls:
                memory = {side: [server.rss_mib()] for side, server in servers.items()}
                yield _ratio(f"memory after the run ({where})", memory, "MiB")
    starts_s = run.rounds(
        run.parameters.starts, lambda _: {side: _start_s(one) for side, one in deployments.items()}, "start"
    )
    yield _ratio(f"start to first answer ({where})", starts_s, "s")


def compare_requests(
    run: Run, servers: Servers, where: str, *, works: Sequence[str] = (), at_most: float | None = None
) -> Iterator[Verdict]:
    """Yield the verdicts on these kinds of requests, or on all, sent to servers with the same data in turn."""
    scripts = {side: _scripts(product.with_tokens(server)) for side, server in servers.items()}
    for work in works or scripts[_OURS]:
        status = b"404" if work == "bearer and limit alone" else b"200"

        def cpu_us(side: str, work: str = work, status: bytes = status) -> float:
            connections = [scripts[side][work](number) for number in range(_CONNECTIONS.get(work, 32))]
            parameters = run.parameters
            seen = load.run(
                servers[side],
                connections,
                duration_s=parameters.duration_s,
                warm_up_s=parameters.warm_up_s,
                status=status,
            )
            require_right([seen])
            return seen.server_cpu_us

        yield _ratio(f"{work} ({where})", _in_turn(run, cpu_us, f"{work}, {where}"), "µs", at_most)


def _scripts(partners: Sequence[Partner]) -> dict[str, Scripts]:
    absent, known = (iter(People("email", seed=seed).acts(4 * 512)) for seed in (2, 1))
    return {
        "look-up without a record": reads(partners, lambda: f"{EMAIL}?address={next(absent).address}"),
        LOOK_UP: reads(partners, lambda: f"{EMAIL}?address={next(known).address}"),
        "bearer and limit alone": reads(partners),
        "client_credentials": token_requests(partners),
        "refresh chain": refresh_chains(partners),
    }


def compare_batches(run: Run, servers: Servers, where: str, *, new_at_most: float | None = None) -> Iterator[Verdict]:
    """Yield the verdicts on batches, new and again, after both feeds were filled with the same people."""
    people = {side: People("email", seed=1) for side in servers}
    sent: dict[str, list[bytes]] = {}

    def bodies(side: str, count: int) -> list[bytes]:
        token = servers[side].token
        return [post(EMAIL, token, batch_body(people[side].acts(_BATCH))) for _ in range(count)]

    def new_us(side: str) -> float:
        sent[side] = bodies(side, _BATCHES_A_TURN)
        return servers[side].cost_us(sent[side])

    for side, server in servers.items():
        server.cost_us(bodies(side, _FILLED_BATCHES))
    title = f"batch of {_BATCH}, {{}} ({where})"
    yield _ratio(title.format("new"), _in_turn(run, new_us, f"new batches, {where}"), "µs", new_at_most)
    again_us = _in_turn(run, lambda side: servers[side].cost_us(sent[side]), f"batches again, {where}")
    yield _ratio(title.format("again"), again_us, "µs")


def compare_pages(run: Run, servers: Servers, where: str, *, at_most: float | None = None) -> Verdict:
    """Return the verdict on the first pages of the feeds that `compare_batches` has filled."""
    pages = {side: [get(f"{EMAIL}?limit={_BATCH}", server.token)] * _PAGES_A_TURN for side, server in servers.items()}
    title = f"follow page of {_BATCH} ({where})"
    return _ratio(title, _in_turn(run, lambda side: servers[side].cost_us(pages[side]), title), "µs", at_most)


def _in_turn(run: Run, measure: Callable[[str], float], label: str) -> dict[str, list[float]]:
    """Return the figures of each side. The side that begins changes with every turn."""

    def turn(number: int) -> dict[str, float]:
        order = (_OURS, _THEIRS) if number % 2 else (_THEIRS, _OURS)
        seen = {side: measure(side) for side in order}
        return {side: seen[side] for side in (_OURS, _THEIRS)}

    seen = run.rounds(run.parameters.rounds, turn, warm_up=True)
    run.progress(f"{label}: {median(seen[_OURS]):.0f} against {median(seen[_THEIRS]):.0f} µs")
    return seen


def _start_s(deployment: Deployment) -> float:
    with deployment.server() as server:
        return server.start_s


def _ratio(title: str, seen: Mapping[str, Sequence[float]], unit: str, at_most: float | None = None) -> Verdict:
    ours, theirs = (median(seen[side]) for side in (_OURS, _THEIRS))
    digits = 2 if unit == "s" else 0
    detail = f"{ours:.{digits}f} against {theirs:.{digits}f} {unit}"
    return verdict(title, ratios(seen[_OURS], seen[_THEIRS]), "x", detail, at_most=_REACH.get(title, at_most))
