"""The rounds: in each, everything that is compared is measured once, one after the other."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from bench import load
from bench.load import Load
from bench.scripts import Scripts
from bench.server import BenchError, Server
from bench.verdict import PageTime, Work, summarize

Figures = dict[tuple[str, str], list[Load]]
Name = TypeVar("Name")
Figure = TypeVar("Figure")


class RunParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The number of rounds, their length, and the amount of data; `grown` records for `--growth`."""

    rounds: int
    duration_s: float
    warm_up_s: float
    records: int
    grown: int
    pages: int
    waits_s: float
    starts: int
    copies: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmark: its parameters and folder, and the figures beside the verdicts, which its parts add."""

    parameters: RunParameters
    scratch: Path
    progress: Callable[[str], None]
    only: str | None = None
    works: dict[str, Work] = {}
    pages: dict[str, list[PageTime]] = {}

    def rounds(
        self, count: int, measure: Callable[[int], Mapping[Name, Figure]], label: str = "", *, warm_up: bool = False
    ) -> dict[Name, list[Figure]]:
        """Return the figures of all rounds by name. With `warm_up`, another round comes first and does not count."""
        seen: dict[Name, list[Figure]] = {}
        for number in range(0 if warm_up else 1, count + 1):
            figures = measure(number)
            if label:
                shown = ", ".join(f"{name} {_format(figure)}" for name, figure in figures.items())
                self.progress(f"round {number}/{count}  {label}: {shown}")
            for name, figure in figures.items() if number else ():
                seen.setdefault(name, []).append(figure)
        return seen

    def add_works(self, figures: Figures, prefix: str = "") -> None:
        """Add the figures of workloads to those of the run."""
        self.works.update({f"{prefix}{work}, {subject}": summarize(of) for (work, subject), of in figures.items()})


class Workload(msgspec.Struct, frozen=True):
    """One server and one kind of work, done once in each round."""

    work: str
    subject: str
    server: Server
    connections: int
    script: Scripts
    status: bytes = b"200"


def run_workloads(
    run: Run, workloads: Iterable[Workload], *, after_round: Callable[[], None] = lambda: None
) -> Figures:
    """Return the figures of all rounds by (work, subject). Raises BenchError if no answer of a workload is right."""
    workloads = tuple(workloads)

    def measure(number: int) -> dict[tuple[str, str], Load]:
        run.progress(f"round {number}/{run.parameters.rounds}")
        seen = {(one.work, one.subject): _measure(run, one) for one in workloads}
        after_round()
        return seen

    # A server's first ten thousand answers take up to twice as long as later ones.
    return run.rounds(run.parameters.rounds, measure, warm_up=True)


def _measure(run: Run, workload: Workload) -> Load:
    scripts = [workload.script(number) for number in range(workload.connections)]
    parameters = run.parameters
    seen = load.run(
        workload.server,
        scripts,
        duration_s=parameters.duration_s,
        warm_up_s=parameters.warm_up_s,
        status=workload.status,
    )
    if seen.requests <= seen.failures:
        raise BenchError(f"{workload.subject} failed at {workload.work}: {seen.first_failure or 'no answer at all'}")
    run.progress(f"{workload.work:20} {workload.subject:20} {seen.rate:8.0f}/s")
    return seen


def _format(figure: object) -> str:
    return f"{figure.rate:.0f}/s" if isinstance(figure, Load) else f"{figure:.3g} s"
