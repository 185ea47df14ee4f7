"""The bars of a chart: a period that a person chooses, and the period before. Source: docs/interface.md section D11."""

from collections.abc import Mapping, Sequence

import msgspec

from stoplist.errors import Missing
from stoplist.web.admin.page_request import PageRequest
from stoplist.web.admin.rendering import day


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The last `days` days; each bar shows `days_per_bar` of them. The texts are for titles, columns and links."""

    days: int
    days_per_bar: int
    title: str
    link: str

    @property
    def unit(self) -> str:
        """The span of one bar."""
        return "day" if self.days_per_bar == 1 else "week"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar: the days that it shows, its stacked counts, and their sum as many days earlier as the period has."""

    label: str
    counts: list[int]
    before: int


_PERIODS = {
    str(period.days): period
    for period in (
        Period(days=30, days_per_bar=1, title="30 days", link="30 days"),
        Period(days=90, days_per_bar=1, title="90 days", link="90 days"),
        Period(days=364, days_per_bar=7, title="52 weeks", link="1 year"),
    )
}
PERIODS = tuple(_PERIODS.values())


def period_of(request: PageRequest) -> Period:
    """Return the period in the query, 30 days by default. Raises Missing for any other period."""
    period = _PERIODS.get(request.query.text("days", "30"))
    if period is None:
        raise Missing(f"There is no chart of this period. The numbers of days are {', '.join(_PERIODS)}.")
    return period


def bars(period: Period, counts: Mapping[int, Sequence[int]], *, today: int) -> list[Bar]:
    """Return the bars of the period, oldest first, from the counts by day (since 1970 UTC); every day needs them."""
    first = today - period.days + 1
    return [
        Bar(
            label=_label(at, at + period.days_per_bar - 1),
            counts=_sums([counts[one] for one in range(at, at + period.days_per_bar)]),
            before=sum(_sums([counts[one - period.days] for one in range(at, at + period.days_per_bar)])),
        )
        for at in range(first, today + 1, period.days_per_bar)
    ]


def _sums(counts: Sequence[Sequence[int]]) -> list[int]:
    return [sum(one) for one in zip(*counts, strict=True)]


def _label(first: int, last: int) -> str:
    return day(first) if first == last else f"{day(first)} to {day(last)}"
