"""Computes the verdict on each row from the figures of the rounds. Pure arithmetic."""

from collections.abc import Sequence
from statistics import median

import msgspec

from bench.load import Load


class Spread(msgspec.Struct, frozen=True):
    """The median of the rounds, between the least and the greatest."""

    median: float
    least: float
    greatest: float


class Target(msgspec.Struct, frozen=True):
    """The limit of a figure: a minimum if `at_least`, otherwise a maximum."""

    limit: float
    at_least: bool

    def is_met_by(self, figure: float) -> bool:
        """Return whether `figure` reaches this target."""
        return figure >= self.limit if self.at_least else figure <= self.limit


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one server and one kind of work, over all rounds."""

    rate: Spread
    server_cpu_us: Spread
    client_cpu_share: Spread
    others_cpu_share: Spread
    p50_ms: Spread
    p99_ms: Spread
    requests: int
    failures: int
    first_failure: str | None
    cipher: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table of verdicts. `unit` says how the figure is shown: `%`, `x`, `MiB`."""

    title: str
    figure: Spread
    unit: str
    target: Target | None
    detail: str

    @property
    def is_met(self) -> bool:
        """Whether the median reaches the target; true if there is no target."""
        return self.target is None or self.target.is_met_by(self.figure.median)


class PageTime(msgspec.Struct, frozen=True, kw_only=True):
    """The processor time of one page. `few_us` and `slower` are None if only the larger database has the page."""

    title: str
    many_us: Spread
    look_ups: Spread
    few_us: Spread | None = None
    slower: Spread | None = None


def in_unit(figure: float, unit: str) -> str:
    """Return a figure with its unit, as table and chart show it."""
    if unit == "%":
        return f"{figure * 100:.1f} %"
    if unit == "x":
        return f"{figure:.2f} x"
    return f"{figure:.2f} s" if unit == "s" else f"{figure:.0f} {unit}"


def format_ratio(figure: Spread, digits: int) -> str:
    """Return a ratio as the tables of pages show it."""
    return f"{figure.median:.{digits}f} ({figure.least:.{digits}f}..{figure.greatest:.{digits}f})"


def verdict_label(verdict: Verdict) -> str:
    """Return `reached` or `MISSED`, or nothing if there is no target."""
    if verdict.target is None:
        return ""
    return "reached" if verdict.is_met else "MISSED"


def target_label(verdict: Verdict) -> str:
    """Return the target as in `≥ 18.0 %`, or nothing if there is none."""
    if verdict.target is None:
        return ""
    return f"{'≥' if verdict.target.at_least else '≤'} {in_unit(verdict.target.limit, verdict.unit)}"


def spread(figures: Sequence[float]) -> Spread:
    """Return the spread of the figures, of which there must be at least one."""
    return Spread(median(figures), min(figures), max(figures))


def round_ratios(above: Sequence[Load], below: Sequence[Load]) -> Spread:
    """Return the ratios of the rates, computed round by round, so that changes of the machine's speed cancel out."""
    return spread([one.rate / other.rate for one, other in zip(above, below, strict=True)])


def summarize(loads: Sequence[Load]) -> Work:
    """Return the figures of all rounds as one Work."""
    return Work(
        rate=spread([load.rate for load in loads]),
        server_cpu_us=spread([load.server_cpu_us for load in loads]),
        client_cpu_share=spread([load.client_cpu_share for load in loads]),
        others_cpu_share=spread([load.others_cpu_share for load in loads]),
        p50_ms=spread([load.p50_ms for load in loads]),
        p99_ms=spread([load.p99_ms for load in loads]),
        requests=sum(load.requests for load in loads),
        failures=sum(load.failures for load in loads),
        first_failure=next((load.first_failure for load in loads if load.first_failure), None),
        cipher=loads[0].cipher,
    )
