"""The benchmark requests every page of the application, and its verdict is on the worst page."""

import pytest

from bench import pages, report, requests
from bench.dataset import ADMINISTRATOR, ORGANIZATION_ADMIN, Dataset
from bench.machine import Machine
from bench.scripts import Partner
from bench.server import BenchError
from bench.verdict import Outcome, PageTime, Series
from stoplist.web.admin.page_request import PageRoute, get
from stoplist.web.admin.screens import ROUTES

DATASET = Dataset(
    partner=Partner("svc_ci_bench", "svc_cs_bench"),
    tokens={ADMINISTRATOR: "svc_ss_ada", ORGANIZATION_ADMIN: "svc_ss_olga"},
    group_id="grp_bench",
    link_key_id="lnk_bench",
    import_id="imp_bench",
    submission_id="sub_bench",
    big_submission_id="sub_big",
    record_seq=1,
    middle_seq=2,
    long_history_seq=3,
)
MACHINE = Machine(
    processor="", cores=2, memory_gib=1.0, system="", python="", tls="", libraries={"uvicorn": ""}, sync_us=1.0
)


def test_every_page_is_measured() -> None:
    """Every page for signed-in people is requested, except downloads."""
    requested = {one.title for one in requests.measured_requests(DATASET)}
    assert {route.path for route in ROUTES if route.method == "GET" and not route.is_open} - requested == {
        "/audit/export",
        "/unsubscribes/{org_slug}/{channel}/export/file",
        "/unsubscribes/{org_slug}/{channel}/{seq}/person/file",
        "/settings/imports/{import_id}/rejects",
    }


def test_every_request_is_to_an_existing_page() -> None:
    existing = {(route.method, route.path) for route in ROUTES}
    requested = {
        ("GET" if one.fields is None else "POST", one.title.partition(", ")[0])
        for one in requests.measured_requests(DATASET)
    }
    assert requested <= existing


def test_a_path_parameter_without_an_example_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No new page is left out silently."""
    monkeypatch.setattr(requests, "ROUTES", (*ROUTES, _page("/planets/{planet}")))
    with pytest.raises(BenchError, match=r"no example of 'planet' in the path of the page /planets/\{planet\}"):
        requests.measured_requests(DATASET)


def test_titles_are_unique() -> None:
    """Titles name the lines of the table."""
    titles = [one.title for one in requests.measured_requests(DATASET)]
    assert len(titles) == len(set(titles))


def test_the_verdicts_are_on_the_worst_pages() -> None:
    """One page over its limit is enough, and it is named. Pages of the larger database alone count too.

    A filter that finds nothing is bound by time, and does not count.
    """
    times = [
        _time("/calm", slower=1.1, look_ups=3.0),
        _time("/grows", slower=1.6, look_ups=9.0),
        _time("/big", None, 150.0),
        _time("/list, a filter that finds nothing", 50.0, 900.0),
    ]
    growth, cost = pages.verdicts(times, (10_000, 1_000_000), "SQLite")
    assert (growth.figure.median, growth.is_met, growth.detail) == (
        1.6,
        False,
        "`/grows`; the median page of 2: 1.35 x",
    )
    assert (cost.figure.median, cost.is_met) == (150.0, False)
    assert cost.detail == "`/big`, 2.0 ms; the median page of 3: 9.0 x"


def test_each_page_is_one_line_for_both_databases() -> None:
    """Figures that were not measured stay empty."""
    seen = {"SQLite": [_time("/a", 1.0, 3.0), _time("/b", None, 2.0)], "PostgreSQL": [_time("/a", 1.2, 4.0)]}
    lines = report.markdown(Outcome(machine=MACHINE, verdicts=[], works={}, pages=seen)).splitlines()
    assert "| `/a` | 2000 | 1.00 (1.00..1.00) | 3.0 (3.0..3.0) | 2000 | 1.20 (1.20..1.20) | 4.0 (4.0..4.0) |" in lines
    assert "| `/b` | 2000 |  | 2.0 (2.0..2.0) |  |  |  |" in lines


def _time(title: str, slower: float | None, look_ups: float) -> PageTime:
    return PageTime(
        title=title,
        many_us=Series([2000.0]),
        slower=None if slower is None else Series([slower]),
        look_ups=Series([look_ups]),
    )


def _page(path: str) -> PageRoute:
    async def show(_: object) -> None: ...

    return get(path, show)  # type: ignore[arg-type]
