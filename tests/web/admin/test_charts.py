"""The bars of a chart. docs/interface.md section D11."""

import pytest

from stoplist.web.admin.charts import PERIODS, Bar, Period, bars

TODAY = 20_000


@pytest.mark.parametrize("period", PERIODS, ids=lambda period: str(period.days))
def test_the_bars_hold_every_day_of_both_periods_once(period: Period) -> None:
    """Each beside the same days of the period before."""
    counts = {TODAY - ago: (1, ago) for ago in range(2 * period.days)}
    drawn = bars(period, counts, today=TODAY)
    assert len(drawn) == period.days // period.days_per_bar
    assert sum(bar.counts[1] for bar in drawn) == sum(range(period.days))
    for bar in drawn:
        assert bar.counts[0] == period.days_per_bar
        assert bar.before - bar.counts[1] == period.days_per_bar * (period.days + 1)


def test_a_bar_of_several_days_names_both_ends() -> None:
    counts = {day: (day == TODAY, 0) for day in range(TODAY - 727, TODAY + 1)}
    *_, last = bars(PERIODS[-1], counts, today=TODAY)
    assert last == Bar(label="2024-09-28 to 2024-10-04", counts=[1, 0], before=0)
