"""The rounds: in each, everything that is compared is measured once, one after the other."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from bench import load
from bench.load import Load
from bench.scripts import Scripts
from bench.server import BenchError, Server
from bench.verdict import PageTime, Series, Work

Name = TypeVar("Name")
Figure = TypeVar("Figure")
Works = dict[tuple[str, str], Work]
"""Figures by kind of work and subject."""


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


class Workload(msgspec.Struct, frozen=True):
    """One server and one kind of work, done once in each round."""

    work: str
    subject: str
    server: Server
    connections: int
    scripts: Scripts
    status: bytes = b"200"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmark: its parameters and folder, and the figures beside the verdicts, which its parts add."""

    parameters: RunParameters
    scratch: Path
    progress: Callable[[str], None]
    only: str | None = None
    works: dict[str, Work] = {}
    pages: dict[str, list[PageTime]] = {}

    def rounds(
        self,
        measure: Callable[[int], Mapping[Name, float]],
        label: str = "",
        *,
        count: int | None = None,
        warm_up: bool = True,
    ) -> dict[Name, Series]:
        """Return the figures of all rounds by name. With `warm_up`, another round comes first and does not count."""
        count = count or self.parameters.rounds

        def measure_and_tell(number: int) -> Mapping[Name, float]:
            figures = measure(number)
            if label:
                shown = ", ".join(f"{name} {figure:.3g}" for name, figure in figures.items())
                self.progress(f"round {number}/{count}  {label}: {shown}")
            return figures

        seen = _collect(measure_and_tell, range(0 if warm_up else 1, count + 1))
        return {name: Series(figures) for name, figures in seen.items()}

    def in_turn(
        self,
        measures: Mapping[Name, Callable[[], float]],
        label: str = "",
        *,
        count: int | None = None,
        warm_up: bool = True,
    ) -> dict[Name, Series]:
        """Return the figures of all rounds by name. What begins changes with every round."""

        def measure(number: int) -> dict[Name, float]:
            return {name: measures[name]() for name in list(measures)[:: 1 if number % 2 else -1]}

        seen = self.rounds(measure, label, count=count, warm_up=warm_up)
        return {name: seen[name] for name in measures}

    def loads(
        self,
        workloads: Iterable[Workload],
        *,
        table: str | None = None,
        after_round: Callable[[], object] = lambda: None,
    ) -> Works:
        """Return the figures of all rounds by (work, subject).

        With `table`, a prefix of titles, the report shows them with their failures. Otherwise a wrong answer raises
        BenchError.
        """
        workloads = tuple(workloads)

        def measure(number: int) -> dict[tuple[str, str], Load]:
            self.progress(f"round {number}/{self.parameters.rounds}")
            seen = {(one.work, one.subject): self.load(one, may_fail=table is not None) for one in workloads}
            after_round()
            return seen

        # A server's first ten thousand answers take up to twice as long as later ones.
        seen = _collect(measure, range(self.parameters.rounds + 1))
        works = {name: Work.of(loads) for name, loads in seen.items()}
        if table is not None:
            self.works.update({f"{table}{work}, {subject}": of for (work, subject), of in works.items()})
        return works

    def load(self, workload: Workload, *, may_fail: bool = False) -> Load:
        """Do the work for one round. Raises BenchError if no answer is right, or if one is wrong unless `may_fail`."""
        seen = load.run(
            workload.server,
            [workload.scripts(number) for number in range(workload.connections)],
            duration_s=self.parameters.duration_s,
            warm_up_s=self.parameters.warm_up_s,
            status=workload.status,
        )
        if seen.requests <= seen.failures or (seen.failures and not may_fail):
            reason = seen.first_failure or "no answer at all"
            raise BenchError(f"{workload.subject} failed at {workload.work}: {reason}")
        self.progress(f"{workload.work:20} {workload.subject:20} {seen.rate:8.0f}/s")
        return seen


def _collect(measure: Callable[[int], Mapping[Name, Figure]], numbers: Iterable[int]) -> dict[Name, list[Figure]]:
    """Return what each round measured, by name. Round 0 does not count."""
    seen: dict[Name, list[Figure]] = {}
    for number in numbers:
        figures = measure(number)
        for name, figure in figures.items() if number else ():
            seen.setdefault(name, []).append(figure)
    return seen
