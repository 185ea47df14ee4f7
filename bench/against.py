"""The rows of `--against REVISION`: this working tree against another revision of this repository, in turns.

The figure is the processor time of the server for one request, all threads together, because elapsed time depends on
what else the machine does. Both servers run throughout; in each turn each does the same work once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench import load, product
from bench.load import require_right
from bench.product import Deployment, ProductServer
from bench.rounds import Run
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, Partner, Scripts, post, reads, refresh_chains, token_requests
from bench.server import BenchError
from bench.verdict import Verdict, ratios, verdict
from tests.services import revisions

_BATCH, _FILLED_BATCHES = 10_000, 10
# The kernel counts processor time in hundredths of a second: ten batches together keep the error below 3 %.
_BATCHES_A_TURN = 10
_FOLLOWED = f"follow page of {_BATCH}"
_CONNECTIONS = {"refresh chain": 16, _FOLLOWED: 4}
_OURS, _THEIRS = "this", "that"
# What the working tree may take of the time of the revision before docs/decisions/0019, over plain HTTP.
_BASELINE = "8be310d"
_REACH = {
    f"{work} ({database}, against {_BASELINE}{'' if 'batch' in work else ', plain'})": at_most
    for database, limits in {
        "SQLite": {
            "look-up without a record": 0.70,
            "look-up with a record": 0.75,
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
# What a batch may take of its time before there were erased persons, in a feed that has none.
_BEFORE_ERASURE = "d77181b"
_REACH |= {
    f"batch of {_BATCH}, new ({database}, against {_BEFORE_ERASURE})": 1.02 for database in ("SQLite", "PostgreSQL")
}

Servers = Mapping[str, ProductServer]


def measure(run: Run, revision: str) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite and PostgreSQL: behind a trusted proxy, and over TLS."""
    run.progress(f"building {revision}")
    try:
        name, command = revisions.build(revision)
    except revisions.Unavailable as error:
        raise BenchError(str(error)) from error
    with ExitStack() as running:
        for where, make in (("SQLite", _on_sqlite), ("PostgreSQL", product.on_postgresql)):
            deployments = {}
            for side, other in ((_OURS, None), (_THEIRS, command)):
                folder = run.scratch / f"{side}-{where}"
                deployments[side] = running.enter_context(make(folder, command=other))
            yield from _compare(run, deployments, f"{where}, against {name}")


@contextmanager
def _on_sqlite(folder: Path, *, command: Path | None) -> Iterator[Deployment]:
    yield Deployment.create(folder, command=command)


def _compare(run: Run, deployments: Mapping[str, Deployment], where: str) -> Iterator[Verdict]:
    for tls in (False, True):
        with ExitStack() as running:
            servers = {side: running.enter_context(one.server(tls=tls)) for side, one in deployments.items()}
            if not tls:
                yield from _batches(run, servers, where)
            yield from _requests(run, servers, f"{where}, {'TLS' if tls else 'plain'}")
            if tls:
                memory = {side: [server.rss_mib()] for side, server in servers.items()}
                yield _ratio(f"memory after the run ({where})", memory, "MiB")
    starts_s = run.rounds(
        run.parameters.starts, lambda _: {side: _start_s(one) for side, one in deployments.items()}, "start"
    )
    yield _ratio(f"start to first answer ({where})", starts_s, "s")


def _requests(run: Run, servers: Servers, where: str) -> Iterator[Verdict]:
    scripts = {side: _scripts(product.with_tokens(server)) for side, server in servers.items()}
    for work in scripts[_OURS]:
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

        yield _ratio(f"{work} ({where})", _in_turn(run, cpu_us, f"{work}, {where}"), "µs")


def _scripts(partners: Sequence[Partner]) -> dict[str, Scripts]:
    absent, known = (iter(People("email", seed=seed).acts(4 * 512)) for seed in (2, 1))
    return {
        "look-up without a record": reads(partners, lambda: f"{EMAIL}?address={next(absent).address}"),
        "look-up with a record": reads(partners, lambda: f"{EMAIL}?address={next(known).address}"),
        _FOLLOWED: reads(partners, lambda: f"{EMAIL}?limit={_BATCH}"),
        "bearer and limit alone": reads(partners),
        "client_credentials": token_requests(partners),
        "refresh chain": refresh_chains(partners),
    }


def _batches(run: Run, servers: Servers, where: str) -> Iterator[Verdict]:
    """Yield the verdicts on batches, new and again, after both feeds were filled with the same people."""
    people = {side: People("email", seed=1) for side in servers}
    sent: dict[str, list[bytes]] = {}

    def bodies(side: str, count: int) -> list[bytes]:
        token = servers[side].token
        return [post(EMAIL, token, batch_body(people[side].acts(_BATCH))) for _ in range(count)]

    def new_us(side: str) -> float:
        sent[side] = bodies(side, _BATCHES_A_TURN)
        return _cpu_us(servers[side], sent[side])

    for side, server in servers.items():
        _cpu_us(server, bodies(side, _FILLED_BATCHES))
    title = f"batch of {_BATCH}, {{}} ({where})"
    yield _ratio(title.format("new"), _in_turn(run, new_us, f"new batches, {where}"), "µs")
    again_us = _in_turn(run, lambda side: _cpu_us(servers[side], sent[side]), f"batches again, {where}")
    yield _ratio(title.format("again"), again_us, "µs")


def _cpu_us(server: ProductServer, requests: Sequence[bytes]) -> float:
    """Return the processor time of the server for one of the requests."""
    with server.caller() as caller:
        before_s = server.cpu_s()
        for request in requests:
            caller.call(request)
        return (server.cpu_s() - before_s) / len(requests) * 1e6


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


def _ratio(title: str, seen: Mapping[str, Sequence[float]], unit: str) -> Verdict:
    ours, theirs = (median(seen[side]) for side in (_OURS, _THEIRS))
    digits = 2 if unit == "s" else 0
    detail = f"{ours:.{digits}f} against {theirs:.{digits}f} {unit}"
    return verdict(title, ratios(seen[_OURS], seen[_THEIRS]), "x", detail, at_most=_REACH.get(title))
