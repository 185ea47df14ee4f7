"""The figures of all rounds, and the verdict on each row. Pure arithmetic."""

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from bench.load import Load
from bench.machine import Machine


class Series:
    """The figures of one thing, one for each round; formatted, as in `f"{times:.1f} s"`, it shows their median.

    `ours / theirs` divides within each round, so that changes of the machine's speed cancel out.
    """

    def __init__(self, figures: Iterable[float]) -> None:
        self.figures = tuple(figures)
        self.median, self.least, self.greatest = median(self.figures), min(self.figures), max(self.figures)

    def __truediv__(self, other: "Series | float") -> "Series":
        divisors = other.figures if isinstance(other, Series) else [other] * len(self.figures)
        return Series(one / divisor for one, divisor in zip(self.figures, divisors, strict=True))

    def __rtruediv__(self, dividend: float) -> "Series":
        return Series(dividend / one for one in self.figures)

    def __mul__(self, factor: float) -> "Series":
        return Series(one * factor for one in self.figures)

    def __format__(self, spec: str) -> str:
        return format(self.median, spec)


class Target(msgspec.Struct, frozen=True):
    """The limit of a figure: a minimum if `at_least`, otherwise a maximum."""

    limit: float
    at_least: bool

    def is_met(self, figure: float) -> bool:
        return figure >= self.limit if self.at_least else figure <= self.limit


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table of verdicts. `unit` says how the figure is shown: `%`, `x`, `s`, `MiB`."""

    title: str
    figure: Series
    unit: str
    target: Target | None
    detail: str

    @property
    def is_met(self) -> bool:
        """Return whether the median reaches the target; true if there is no target."""
        return self.target is None or self.target.is_met(self.figure.median)

    @property
    def label(self) -> str:
        """`reached` or `MISSED`, or nothing if there is no target."""
        return "" if self.target is None else "reached" if self.is_met else "MISSED"

    @property
    def target_label(self) -> str:
        """The target as in `≥ 18.0 %`, or nothing if there is none."""
        if self.target is None:
            return ""
        return f"{'≥' if self.target.at_least else '≤'} {self.in_unit(self.target.limit)}"

    def in_unit(self, figure: float) -> str:
        """Return a figure with the unit, as table and chart show it."""
        if self.unit == "%":
            return f"{figure * 100:.1f} %"
        return f"{figure:.{2 if self.unit in 'xs' else 0}f} {self.unit}"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one server and one kind of work, over all rounds."""

    rate: Series
    server_cpu_us: Series
    client_cpu_share: Series
    others_cpu_share: Series
    p50_ms: Series
    p99_ms: Series
    requests: int
    failures: int
    first_failure: str | None
    cipher: str

    @classmethod
    def of(cls, loads: Sequence[Load]) -> "Work":
        """Return the figures of all rounds."""
        names = ("rate", "server_cpu_us", "client_cpu_share", "others_cpu_share", "p50_ms", "p99_ms")
        return cls(
            **{name: Series(getattr(load, name) for load in loads) for name in names},
            requests=sum(load.requests for load in loads),
            failures=sum(load.failures for load in loads),
            first_failure=next((load.first_failure for load in loads if load.failures), None),
            cipher=loads[0].cipher,
        )


class PageTime(msgspec.Struct, frozen=True, kw_only=True):
    """The processor time of one page. `few_us` and `slower` are None if only the larger database has the page."""

    title: str
    many_us: Series
    look_ups: Series
    few_us: Series | None = None
    slower: Series | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts, the figures of each kind of work by title, and the cost of each page by database."""

    machine: Machine
    verdicts: list[Verdict]
    works: dict[str, Work]
    pages: dict[str, list[PageTime]]


def verdict(
    title: str,
    figures: Series | Iterable[float],
    unit: str,
    detail: str = "",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Verdict:
    """Return the verdict on the figures of all rounds, without a target if there is no limit."""
    figure = figures if isinstance(figures, Series) else Series(figures)
    limit = at_most if at_least is None else at_least
    target = None if limit is None else Target(limit, at_least is not None)
    return Verdict(title=title, figure=figure, unit=unit, target=target, detail=detail)
