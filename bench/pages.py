"""The rows on the admin pages at ten thousand records and at a million, each against a look-up in the same run.

A page's time is the processor time of the server and PostgreSQL together, because elapsed time depends on other
programs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter

from bench import history, product
from bench.history import CHANNEL, Dataset
from bench.product import Deployment
from bench.requests import measured_requests
from bench.rounds import Run
from bench.sample_people import People
from bench.scripts import client_credentials, get
from bench.server import BenchError
from bench.verdict import PageTime, Verdict, ratios, spread, verdict

FEW = 10_000
_MAX_ROUNDS = 5
_CONCURRENCY = 4
# The kernel counts processor time in hundredths of a second.
_MIN_CPU_S, _MAX_DURATION_S, _SLICE_S = 0.15, 5.0, 0.1
_TOKENS, _ADDRESSES = 4, 500
_PAGES_PER_LOOK_UP = 6
# These look through the feed for up to a second, and say how far they came.
_BOUND_BY_TIME = (", a filter that finds nothing", ", nothing within many days")


class _Subject:
    """A server on one of the two databases with concurrent callers."""

    def __init__(self, running: ExitStack, deployment: Deployment, dataset: Dataset) -> None:
        self.dataset, self.server = dataset, running.enter_context(deployment.server(with_database=True))
        self._callers = [running.enter_context(self.server.caller()) for _ in range(_CONCURRENCY)]

    def call_all(self, requests: Iterator[bytes]) -> None:
        """Send one request by each caller at once. Raises BenchError if a status is not 200."""
        for caller in self._callers:
            caller.send(next(requests))
        for caller in self._callers:
            caller.receive().require()

    def requests(self) -> dict[str, bytes]:
        """Return the requests that apply to this server by title. Raises BenchError with every page not shown."""
        possible = [one for one in measured_requests(self.dataset) if self.dataset.big_submission_id or not one.is_big]
        requests = {one.title: one.request(self.dataset) for one in possible}
        statuses = {title: self.server.send_once(request).status.decode() for title, request in requests.items()}
        if wrong := [f"{title}: {status}" for title, status in statuses.items() if status != "200"]:
            raise BenchError("pages were not shown:\n" + "\n".join(wrong))
        return requests

    def look_ups(self) -> list[bytes]:
        """Return look-ups of many addresses, by a key with a high ceiling."""
        request = client_credentials(self.dataset.partner)
        tokens = [json.loads(self.server.send_once(request).body)["access_token"] for _ in range(_TOKENS)]
        return [
            get(f"/api/v1/unsubscribe/{CHANNEL}?address={act.address}", tokens[number % _TOKENS])
            for number, act in enumerate(People(CHANNEL, seed=1).acts(_ADDRESSES))
        ]


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite."""
    datasets = [_dataset(run, records) for records in (FEW, run.parameters.records)]
    with ExitStack() as running:
        few, many = (_Subject(running, *dataset) for dataset in datasets)
        yield from _measure(run, few, many, "SQLite")


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL, with copies of the same datasets."""
    with ExitStack() as running:
        copies = [_copy(run, running, records) for records in (FEW, run.parameters.records)]
        few, many = (_Subject(running, *copy) for copy in copies)
        yield from _measure(run, few, many, "PostgreSQL")


def verdicts(pages: Sequence[PageTime], records: tuple[int, int], where: str) -> Iterator[Verdict]:
    """Yield the verdict on the page that grows most, and the one on the page that costs most."""
    pages = [one for one in pages if not one.title.endswith(_BOUND_BY_TIME)]
    growth = [(one.slower, one.title) for one in pages if one.slower is not None]
    slower, title = max(growth, key=lambda one: one[0].median)
    yield verdict(
        f"pages on {where}, the worst: server time at {records[1]} records against {records[0]}",
        slower,
        "x",
        f"`{title}`; the median page of {len(growth)}: {median(one.median for one, _ in growth):.2f} x",
        at_most=1.5,
    )
    page = max(pages, key=lambda one: one.look_ups.median)
    typical = median(one.look_ups.median for one in pages)
    yield verdict(
        f"pages on {where}, the worst: server time against one look-up",
        page.look_ups,
        "x",
        f"`{page.title}`, {page.many_us.median / 1000:.1f} ms; the median page of {len(pages)}: {typical:.1f} x",
        at_most=100.0,
    )


@cache
def _filled(folder: Path, records: int) -> tuple[Deployment, Dataset]:
    deployment = Deployment.create(folder, partners=())
    return deployment, history.fill(deployment.database, records)


def _dataset(run: Run, records: int) -> tuple[Deployment, Dataset]:
    """Return the deployment on SQLite with that many records, made once, and its dataset."""
    run.progress(f"a dataset of {records} records for the pages")
    return _filled(run.scratch / f"pages-{records}", records)


def _copy(run: Run, running: ExitStack, records: int) -> tuple[Deployment, Dataset]:
    """Return a copy in a PostgreSQL of its own, which ends with `running`. No server may run on the source."""
    source, dataset = _dataset(run, records)
    deployment = running.enter_context(product.on_postgresql(source.folder, partners=()))
    run.progress(f"copying {records} records to PostgreSQL for the pages")
    deployment.run("copy", "--from", source.database_url, "--to", deployment.database_url, "--json")
    return deployment, dataset


def _measure(run: Run, few: _Subject, many: _Subject, where: str) -> Iterator[Verdict]:
    few_requests, many_requests, look_ups = few.requests(), many.requests(), many.look_ups()
    look_up_us: list[float] = []

    def measure(number: int) -> dict[str, dict[str, float]]:
        seen: dict[str, dict[str, float]] = {}
        for at, (title, request) in enumerate(many_requests.items()):
            if at % _PAGES_PER_LOOK_UP == 0:
                look_up_us[:] = _cpu_us({many: look_ups})
            subjects = {many: [request]} | ({few: [few_requests[title]]} if title in few_requests else {})
            seen[title] = dict(zip(("many", "few"), _cpu_us(subjects), strict=False)) | {"look-up": look_up_us[0]}
        run.progress(f"round {number}  {len(seen)} pages on {where}, a look-up {look_up_us[0]:.0f} µs")
        return seen

    # The first round reads templates, prepares statements and fills caches.
    seen = run.rounds(min(run.parameters.rounds, _MAX_ROUNDS), measure, warm_up=True)
    pages = [_page_time(title, rounds) for title, rounds in seen.items()]
    run.pages[where] = pages
    yield from verdicts(pages, (FEW, run.parameters.records), where)


def _page_time(title: str, rounds: Sequence[Mapping[str, float]]) -> PageTime:
    many_us, look_up_us = ([one[name] for one in rounds] for name in ("many", "look-up"))
    few_us = [one["few"] for one in rounds if "few" in one]
    return PageTime(
        title=title,
        few_us=spread(few_us) if few_us else None,
        many_us=spread(many_us),
        slower=spread(_ratios(many_us, few_us)) if few_us else None,
        look_ups=spread(_ratios(many_us, look_up_us)),
    )


def _ratios(above: Iterable[float], below: Iterable[float]) -> list[float]:
    # A page can cost less than one tick of the kernel's clock: avoid dividing by zero.
    return ratios(above, (max(one, 1.0) for one in below))


def _cpu_us(requests_of: Mapping[_Subject, list[bytes]]) -> list[float]:
    """Return the processor time of one request of each, in microseconds. Requests are sent in turn, repeatedly."""
    requests = {subject: cycle(of) for subject, of in requests_of.items()}
    before_s = [subject.server.cpu_s() for subject in requests_of]
    begun_s, count, spent_s = perf_counter(), 0, [0.0]
    while min(spent_s) < _MIN_CPU_S and perf_counter() < begun_s + _MAX_DURATION_S:
        until_s = perf_counter() + _SLICE_S
        while perf_counter() < until_s:
            for subject, of in requests.items():
                subject.call_all(of)
            count += _CONCURRENCY
        spent_s = [subject.server.cpu_s() - before for subject, before in zip(requests_of, before_s, strict=True)]
    return [spent / count * 1e6 for spent in spent_s]
