"""The verdict on each row, and the figures behind it. Pure arithmetic."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

import msgspec

from bench.load import Load
from bench.machine import Machine


class Spread(msgspec.Struct, frozen=True):
    """The median of the rounds, between the least and the greatest."""

    median: float
    least: float
    greatest: float


class Target(msgspec.Struct, frozen=True):
    """The limit of a figure: a minimum if `at_least`, otherwise a maximum."""

    limit: float
    at_least: bool


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table of verdicts. `unit` says how the figure is shown: `%`, `x`, `s`, `MiB`."""

    title: str
    figure: Spread
    unit: str
    target: Target | None
    detail: str

    @property
    def is_met(self) -> bool:
        """Return whether the median reaches the target; true if there is no target."""
        if self.target is None:
            return True
        figure, limit = self.figure.median, self.target.limit
        return figure >= limit if self.target.at_least else figure <= limit

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


class PageTime(msgspec.Struct, frozen=True, kw_only=True):
    """The processor time of one page. `few_us` and `slower` are None if only the larger database has the page."""

    title: str
    many_us: Spread
    look_ups: Spread
    few_us: Spread | None = None
    slower: Spread | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts, the figures of each kind of work by title, and the cost of each page by database."""

    machine: Machine
    verdicts: list[Verdict]
    works: dict[str, Work]
    pages: dict[str, list[PageTime]]


def verdict(
    title: str,
    figures: Spread | Iterable[float],
    unit: str,
    detail: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Verdict:
    """Return the verdict on the figures of all rounds, without a target if there is no limit."""
    figure = figures if isinstance(figures, Spread) else spread(figures)
    limit = at_most if at_least is None else at_least
    target = None if limit is None else Target(limit, at_least is not None)
    return Verdict(title=title, figure=figure, unit=unit, target=target, detail=detail)


def spread(figures: Iterable[float]) -> Spread:
    """Return the spread of the figures, of which there must be at least one."""
    figures = tuple(figures)
    return Spread(median(figures), min(figures), max(figures))


def ratios(above: Iterable[float], below: Iterable[float]) -> list[float]:
    """Return the ratio within each round, so that changes of the machine's speed cancel out."""
    return [one / other for one, other in zip(above, below, strict=True)]


def compare_rates(
    title: str, unit: str, ours: Sequence[Load], other: Sequence[Load], words: str, **limit: float | None
) -> Verdict:
    """Return the verdict on the ratio of two rates, whose medians are put into `words`."""
    rates = [[load.rate for load in loads] for loads in (ours, other)]
    return verdict(title, ratios(*rates), unit, words.format(*(f"{median(one):.0f}/s" for one in rates)), **limit)


def compare_times(
    title: str,
    seconds: Iterable[Sequence[float]],
    words: str,
    shown: Callable[[float], str],
    *,
    at_least: float | None = None,
) -> Verdict:
    """Return the verdict on our share of the speed of the baseline. `words` gets the medians as they are `shown`."""
    ours_s, baseline_s = seconds
    detail = words.format(shown(median(ours_s)), shown(median(baseline_s)))
    return verdict(title, ratios(baseline_s, ours_s), "%", detail, at_least=at_least)


def per_second(count: int) -> Callable[[float], str]:
    """Return a function that shows the seconds for `count` things as a rate."""
    return lambda seconds: f"{count / seconds:.0f}/s"


def summarize(loads: Sequence[Load]) -> Work:
    """Return the figures of all rounds as one Work."""
    spreads = ("rate", "server_cpu_us", "client_cpu_share", "others_cpu_share", "p50_ms", "p99_ms")
    return Work(
        **{name: spread(getattr(load, name) for load in loads) for name in spreads},
        requests=sum(load.requests for load in loads),
        failures=sum(load.failures for load in loads),
        first_failure=next((load.first_failure for load in loads if load.first_failure), None),
        cipher=loads[0].cipher,
    )
