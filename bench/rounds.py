"""The rounds: in each, every server does every kind of work, one after the other."""

from collections.abc import Callable, Iterable

import msgspec

from bench import load
from bench.load import Load, Script
from bench.server import BenchError, Server

Figures = dict[tuple[str, str], list[Load]]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often and for how long each workload runs."""

    rounds: int
    duration_s: float
    warm_up_s: float


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One server and one kind of work, done once in each round."""

    work: str
    subject: str
    server: Server
    connections: int
    script: Callable[[int], Script]


def run(
    workloads: Iterable[Workload], pace: Pace, *, progress: Callable[[str], None], after_round: Callable[[], None]
) -> Figures:
    """Return the figures of all rounds by (work, subject). Raises BenchError if no answer of a workload is right."""
    workloads = tuple(workloads)
    figures: Figures = {(workload.work, workload.subject): [] for workload in workloads}
    # A server's first ten thousand answers take up to twice as long as later ones, so round 0 does not count.
    for number in range(pace.rounds + 1):
        for workload in workloads:
            seen = _measure(workload, pace)
            if number:
                figures[workload.work, workload.subject].append(seen)
            progress(f"round {number}/{pace.rounds}  {workload.work:20} {workload.subject:20} {seen.rate:8.0f}/s")
        after_round()
    return figures


def _measure(workload: Workload, pace: Pace) -> Load:
    seen = load.run(
        [workload.script(number) for number in range(workload.connections)],
        port=workload.server.port,
        ca=workload.server.ca,
        warm_up_s=pace.warm_up_s,
        duration_s=pace.duration_s,
        server_cpu_s=workload.server.cpu_s,
    )
    if seen.requests <= seen.failures:
        raise BenchError(f"{workload.subject} failed at {workload.work}: {seen.first_failure or 'no answer at all'}")
    return seen
