"""The rows of `--against REVISION`: this working tree against another revision of this repository, in turns.

The figure is the processor time of the server for one request, all threads together, because elapsed time depends on
what else the machine does. Both servers run throughout; in each turn each does the same work once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from bench.product import STOPLIST, DatabaseKind, Deployment, ProductServer, deployed
from bench.rounds import Run, Workload
from bench.sample_people import People
from bench.scripts import EMAIL, Partner, Scripts, get, reads, refresh_chains, token_requests
from bench.server import BenchError
from bench.verdict import Series, Verdict, verdict
from tests.services import revisions

_BATCH = 10_000
# The kernel counts processor time in hundredths of a second: that many together keep the error below 3 %.
_BATCHES_A_TURN, _PAGES_A_TURN = 10, 30
LOOK_UP = "look-up with a record"
_BEARER, _REFRESH = "bearer and limit alone", "refresh chain"
_OURS, _THEIRS = _SIDES = ("this", "that")
# What the working tree may take of the time of the revision before docs/decisions/0019, over plain HTTP.
_BASELINE = "8be310d"
_REACH = {
    f"{work} ({database}, against {_BASELINE}{'' if 'batch' in work else ', plain'})": at_most
    for database, limits in {
        "SQLite": {
            "look-up without a record": 0.70,
            LOOK_UP: 0.75,
            _BEARER: 0.75,
            "client_credentials": 0.72,
            _REFRESH: 0.88,
            f"batch of {_BATCH}, new": 1.15,
            f"batch of {_BATCH}, again": 1.05,
        },
        "PostgreSQL": {"look-up without a record": 0.72, "client_credentials": 0.72, _REFRESH: 0.76},
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
    for database in DatabaseKind:
        where = f"{database.value}, against {name}"
        with both_deployed(run, database, command=(str(command),)) as deployments:
            with both_served(deployments) as servers:
                yield from compare_batches(run, servers, where)
                yield compare_pages(run, servers, where)
                yield from compare_requests(run, servers, f"{where}, plain")
            with both_served(deployments, tls=True) as servers:
                yield from compare_requests(run, servers, f"{where}, TLS")
                memory = {side: Series([server.rss_mib()]) for side, server in servers.items()}
                yield _ratio(f"memory after the run ({where})", memory, "MiB")
            yield _starts(run, deployments, where)


@contextmanager
def both_deployed(
    run: Run, database: DatabaseKind, *, command: Sequence[str] = STOPLIST, are_feeds_apart: bool = False
) -> Iterator[dict[str, Deployment]]:
    """Yield a deployment of the working tree and another one to compare it with, each with a database of its own.

    `command` runs the `stoplist` of the other; `are_feeds_apart` are those of the first.
    """
    ours: dict[str, Any] = {"are_feeds_apart": are_feeds_apart}
    theirs: dict[str, Any] = {"command": command}
    with ExitStack() as running:
        yield {
            side: running.enter_context(deployed(database, run.scratch / f"{side}-{database.name}", **options))
            for side, options in zip(_SIDES, (ours, theirs), strict=True)
        }


@contextmanager
def both_served(deployments: Mapping[str, Deployment], *, tls: bool = False) -> Iterator[Servers]:
    """Yield a server of each deployment."""
    with ExitStack() as running:
        yield {side: running.enter_context(one.server(tls=tls)) for side, one in deployments.items()}


def compare_requests(
    run: Run, servers: Servers, where: str, *, works: Sequence[str] = (), at_most: float | None = None
) -> Iterator[Verdict]:
    """Yield the verdicts on these kinds of requests, or on all, sent to servers with the same data in turn."""
    scripts = {side: _scripts(server.with_tokens()) for side, server in servers.items()}

    def cpu_us(work: str, side: str) -> float:
        status = b"404" if work == _BEARER else b"200"
        connections = 16 if work == _REFRESH else 32
        return run.load(Workload(work, side, servers[side], connections, scripts[side][work], status)).server_cpu_us

    for work in works or scripts[_OURS]:
        yield _in_turn(run, f"{work} ({where})", partial(cpu_us, work), at_most)


def _scripts(partners: Sequence[Partner]) -> dict[str, Scripts]:
    absent, known = (iter(People("email", seed=seed).acts(4 * 512)) for seed in (2, 1))
    return {
        "look-up without a record": reads(partners, lambda: f"{EMAIL}?address={next(absent).address}"),
        LOOK_UP: reads(partners, lambda: f"{EMAIL}?address={next(known).address}"),
        _BEARER: reads(partners),
        "client_credentials": token_requests(partners),
        _REFRESH: refresh_chains(partners),
    }


def compare_batches(run: Run, servers: Servers, where: str, *, new_at_most: float | None = None) -> Iterator[Verdict]:
    """Yield the verdicts on batches, new and again, after both feeds were filled with the same people."""
    people = {side: People("email", seed=1) for side in servers}
    sent: dict[str, list[bytes]] = {}

    def post_new_us(side: str) -> float:
        token = servers[side].token
        sent[side] = [people[side].post(token, _BATCH) for _ in range(_BATCHES_A_TURN)]
        return servers[side].cost_us(sent[side])

    for side in servers:
        post_new_us(side)
    yield _in_turn(run, f"batch of {_BATCH}, new ({where})", post_new_us, new_at_most)
    yield _in_turn(run, f"batch of {_BATCH}, again ({where})", lambda side: servers[side].cost_us(sent[side]))


def compare_pages(run: Run, servers: Servers, where: str, *, at_most: float | None = None) -> Verdict:
    """Return the verdict on the first pages of the feeds that `compare_batches` has filled."""
    pages = {side: [get(f"{EMAIL}?limit={_BATCH}", server.token)] * _PAGES_A_TURN for side, server in servers.items()}
    return _in_turn(run, f"follow page of {_BATCH} ({where})", lambda side: servers[side].cost_us(pages[side]), at_most)


def _in_turn(run: Run, title: str, measure_us: Callable[[str], float], at_most: float | None = None) -> Verdict:
    seen_us = run.in_turn({side: partial(measure_us, side) for side in _SIDES}, title)
    return _ratio(title, seen_us, "µs", at_most)


def _starts(run: Run, deployments: Mapping[str, Deployment], where: str) -> Verdict:
    starts = {side: one.server().start_s for side, one in deployments.items()}
    seen_s = run.in_turn(starts, "start", count=run.parameters.starts, warm_up=False)
    return _ratio(f"start to first answer ({where})", seen_s, "s")


def _ratio(title: str, seen: Mapping[str, Series], unit: str, at_most: float | None = None) -> Verdict:
    ours, theirs = seen[_OURS], seen[_THEIRS]
    digits = 2 if unit == "s" else 0
    detail = f"{ours:.{digits}f} against {theirs:.{digits}f} {unit}"
    return verdict(title, ours / theirs, "x", detail, at_most=_REACH.get(title, at_most))
