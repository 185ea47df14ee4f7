"""The bench asks every page of the application, and judges the worst one: bench/requests.py, bench/pages.py."""

import pytest

from bench import markdown, pages, requests
from bench.fixtures import ADMINISTRATOR, ORGANIZATION_ADMIN
from bench.history import Past
from bench.scripts import Partner
from bench.server import BenchError
from bench.verdict import PageTime, Spread
from stoplist.web.admin.page_request import PageRoute, get
from stoplist.web.admin.screens import ROUTES

PAST = Past(
    partner=Partner("svc_ci_bench", "svc_cs_bench"),
    tokens={ADMINISTRATOR: "svc_ss_ada", ORGANIZATION_ADMIN: "svc_ss_olga"},
    group_id="grp_bench",
    submission_id="sub_bench",
    big_submission_id="sub_big",
    record_seq=1,
    middle_seq=2,
    lively_seq=3,
)


def test_every_page_is_asked() -> None:
    """No page that needs somebody to be signed in is left out, but for files."""
    asked = {one.title for one in requests.asks(PAST)}
    assert {way.path for way in ROUTES if way.method == "GET" and not way.is_open} - asked == {"/audit/export"}


def test_whatever_is_asked_in_particular_is_asked_of_a_page_that_there_is() -> None:
    """A page that moves takes its questions along."""
    there = {(way.method, way.path) for way in ROUTES}
    asked = {("GET" if one.fields is None else "POST", one.title.partition(", ")[0]) for one in requests.asks(PAST)}
    assert asked <= there


def test_a_path_with_a_name_that_has_no_example_stops_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new page is not left out in silence."""
    monkeypatch.setattr(requests, "ROUTES", (*ROUTES, _page("/planets/{planet}")))
    with pytest.raises(BenchError, match=r"no example of 'planet' in the path of the page /planets/\{planet\}"):
        requests.asks(PAST)


def test_no_two_questions_have_one_title() -> None:
    """The titles name the lines of the table."""
    titles = [one.title for one in requests.asks(PAST)]
    assert len(titles) == len(set(titles))


def test_the_verdicts_are_those_on_the_worst_page() -> None:
    """One page over its limit is enough, and it is named; one that only the larger database can show counts too."""
    times = [
        _time("/calm", slower=1.1, look_ups=3.0),
        _time("/grows", slower=1.6, look_ups=9.0),
        _time("/big", None, 50.0),
    ]
    growth, cost = pages.verdicts(times, (10_000, 1_000_000), "SQLite")
    assert (growth.figure.median, growth.is_met, growth.detail) == (
        1.6,
        False,
        "`/grows`; the median page of 2: 1.35 x",
    )
    assert (cost.figure.median, cost.is_met) == (50.0, False)
    assert cost.detail == "`/big`, 2.0 ms; the median page of 3: 9.0 x"


def test_each_page_is_a_line_with_the_figures_of_both_databases() -> None:
    """What was not measured stays empty."""
    seen = {"SQLite": [_time("/a", 1.0, 3.0), _time("/b", None, 2.0)], "PostgreSQL": [_time("/a", 1.2, 4.0)]}
    lines = markdown.tables([], {}, seen, note="").splitlines()
    assert "| `/a` | 2000 | 1.00 (1.00..1.00) | 3.0 (3.0..3.0) | 2000 | 1.20 (1.20..1.20) | 4.0 (4.0..4.0) |" in lines
    assert "| `/b` | 2000 |  | 2.0 (2.0..2.0) | | | |" in lines


def _time(title: str, slower: float | None, look_ups: float) -> PageTime:
    return PageTime(
        title=title,
        many_us=_always(2000.0),
        slower=None if slower is None else _always(slower),
        look_ups=_always(look_ups),
    )


def _always(figure: float) -> Spread:
    return Spread(figure, figure, figure)


def _page(path: str) -> PageRoute:
    async def show(_: object) -> None: ...

    return get(path, show)  # type: ignore[arg-type]
