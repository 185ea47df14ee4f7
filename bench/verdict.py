"""From rounds of figures to a verdict on each row: pure arithmetic."""

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
    """What a figure must reach: at least `limit` where `at_least`, else at most."""

    limit: float
    at_least: bool

    def is_met_by(self, figure: float) -> bool:
        """Whether `figure` reaches this target."""
        return figure >= self.limit if self.at_least else figure <= self.limit


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one kind of work, over all rounds."""

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
    """One line of the table that is judged. `unit` is how the figure is shown: `%`, `x`, `MiB`."""

    title: str
    figure: Spread
    unit: str
    target: Target | None
    detail: str

    @property
    def is_met(self) -> bool:
        """Whether the median reaches the target; true without one."""
        return self.target is None or self.target.is_met_by(self.figure.median)


class PageTime(msgspec.Struct, frozen=True, kw_only=True):
    """What one page costs in processor time. `few_us` and `slower` are None where only the larger database can tell."""

    title: str
    many_us: Spread
    look_ups: Spread
    few_us: Spread | None = None
    slower: Spread | None = None


def show(figure: float, unit: str) -> str:
    """A figure with its unit, as table and chart write it."""
    if unit == "%":
        return f"{figure * 100:.1f} %"
    if unit == "x":
        return f"{figure:.2f} x"
    return f"{figure:.2f} s" if unit == "s" else f"{figure:.0f} {unit}"


def in_short(figure: Spread, digits: int) -> str:
    """A ratio as tables of pages write it."""
    return f"{figure.median:.{digits}f} ({figure.least:.{digits}f}..{figure.greatest:.{digits}f})"


def verdict_word(verdict: Verdict) -> str:
    """`reached`, `MISSED`, or nothing where there is no target."""
    if verdict.target is None:
        return ""
    return "reached" if verdict.is_met else "MISSED"


def target_words(verdict: Verdict) -> str:
    """The target as `≥ 18.0 %`; nothing where there is none."""
    if verdict.target is None:
        return ""
    return f"{'≥' if verdict.target.at_least else '≤'} {show(verdict.target.limit, verdict.unit)}"


def spread(figures: Sequence[float]) -> Spread:
    """The spread of at least one figure."""
    return Spread(median(figures), min(figures), max(figures))


def round_ratios(above: Sequence[Load], below: Sequence[Load]) -> Spread:
    """The rates of `above` as parts of those of `below`, round by round: the machine's moods cancel out."""
    return spread([one.rate / other.rate for one, other in zip(above, below, strict=True)])


def sum_up(loads: Sequence[Load]) -> Work:
    """The loads of all rounds as one."""
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
