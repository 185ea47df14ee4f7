"""The admin pages at ten thousand records and at a million, each against a look-up of one address in the same run.

A page's time is the processor time of the server and PostgreSQL together, because elapsed time depends on other
programs.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec

from bench import history, postgresql
from bench.caller import Caller
from bench.cpu_costs import PostgresqlTime
from bench.history import CHANNEL, Dataset
from bench.product import Deployment
from bench.requests import MeasuredRequest, measured_requests
from bench.rounds import Pace
from bench.sample_people import People
from bench.scripts import client_credentials, get
from bench.server import BenchError, Server, send_once
from bench.verdict import PageTime, Spread, Target, Verdict, spread

FEW = 10_000
MAX_SLOWER, MAX_LOOK_UPS = 1.5, 40.0
_MAX_ROUNDS = 5
_CONCURRENCY = 4
# The kernel counts processor time in hundredths of a second.
_MIN_CPU_S, _MAX_DURATION_S, _SLICE_S = 0.15, 5.0, 0.1
_TOKENS, _ADDRESSES = 4, 500
_PAGES_PER_LOOK_UP = 6

Progress = Callable[[str], None]


class Outcome(msgspec.Struct, frozen=True):
    """The verdicts on the worst pages, and the times of every page."""

    verdicts: list[Verdict]
    pages: list[PageTime]


class Datasets:
    """The two deployments: created once on SQLite, and copied from there to PostgreSQL."""

    def __init__(self, scratch: Path, records: int, progress: Progress) -> None:
        self.records = (FEW, records)
        self._scratch, self._progress = scratch, progress
        self._deployments: dict[int, tuple[Deployment, Dataset]] = {}

    def on_sqlite(self, records: int) -> tuple[Deployment, Dataset]:
        """Return the deployment with that many records, and its dataset."""
        if records not in self._deployments:
            self._progress(f"making a dataset of {records} records for the pages")
            deployment = Deployment(self._scratch / f"pages-{records}")
            deployment.folder.mkdir()
            deployment.run("migrate")
            self._deployments[records] = deployment, history.fill(deployment.database, records)
        return self._deployments[records]

    def on_postgresql(self, records: int, running: ExitStack) -> tuple[Deployment, Dataset]:
        """Return a copy in a PostgreSQL of its own, which ends with `running`. No server may run on the source."""
        source, dataset = self.on_sqlite(records)
        settings = running.enter_context(postgresql.settings())
        deployment = Deployment(source.folder, settings)
        deployment.run("migrate")
        self._progress(f"copying {records} records to PostgreSQL for the pages")
        url = settings["STOPLIST_DATABASE_URL"]
        deployment.run("copy", "--from", f"sqlite:///{source.database}", "--to", url, "--json")
        return deployment, dataset


class _Subject:
    """A server on one of the two databases with concurrent callers; `cpu_s` returns its processor time."""

    def __init__(self, server: Server, dataset: Dataset, running: ExitStack, cpu_s: Callable[[], float]) -> None:
        self.dataset, self.cpu_s, self._server = dataset, cpu_s, server
        self._callers = [running.enter_context(Caller(port=server.port, ca=server.ca)) for _ in range(_CONCURRENCY)]

    def call_all(self, requests: Iterator[bytes]) -> None:
        """Send one request by each caller at once. Raises BenchError if a status is not 200."""
        for caller in self._callers:
            caller.send(next(requests))
        for caller in self._callers:
            caller.receive()

    def status(self, request: bytes) -> bytes:
        """Return the status of the answer to a request."""
        return send_once(request, port=self._server.port, ca=self._server.ca).status

    def look_ups(self) -> list[bytes]:
        """Return look-ups of many addresses, by a key with a high ceiling."""
        request = client_credentials(self.dataset.partner)
        answers = [send_once(request, port=self._server.port, ca=self._server.ca) for _ in range(_TOKENS)]
        tokens = [json.loads(answer.body)["access_token"] for answer in answers]
        return [
            get(f"/api/v1/unsubscribe/{CHANNEL}?address={act.address}", tokens[number % _TOKENS])
            for number, act in enumerate(People(CHANNEL, seed=1).acts(_ADDRESSES))
        ]


def on_sqlite(pace: Pace, datasets: Datasets, progress: Progress) -> Outcome:
    """Measure the pages on SQLite."""
    deployments = [datasets.on_sqlite(records) for records in datasets.records]
    with ExitStack() as running:
        subjects = []
        for deployment, dataset in deployments:
            server = running.enter_context(deployment.server())
            subjects.append(_Subject(server, dataset, running, server.cpu_s))
        return _measure(pace, subjects, datasets.records, progress, where="SQLite")


def on_postgresql(pace: Pace, datasets: Datasets, progress: Progress) -> Outcome:
    """Measure the pages on PostgreSQL."""
    with ExitStack() as running:
        subjects = []
        for deployment, dataset in [datasets.on_postgresql(records, running) for records in datasets.records]:
            server = running.enter_context(deployment.server())
            database = PostgresqlTime(deployment.settings["STOPLIST_DATABASE_URL"])
            subjects.append(_Subject(server, dataset, running, _sum_of(server.cpu_s, database.cpu_s)))
        return _measure(pace, subjects, datasets.records, progress, where="PostgreSQL")


def _sum_of(*parts: Callable[[], float]) -> Callable[[], float]:
    return lambda: sum(part() for part in parts)


def _measure(
    pace: Pace, subjects: Sequence[_Subject], records: tuple[int, int], progress: Progress, *, where: str
) -> Outcome:
    few, many = subjects
    few_requests = {one.title: one.request(few.dataset) for one in _check(few)}
    many_requests = {one.title: one.request(many.dataset) for one in _check(many)}
    look_ups = many.look_ups()
    times: dict[str, list[tuple[float | None, float, float]]] = defaultdict(list)
    rounds = min(pace.rounds, _MAX_ROUNDS)
    # The first round does not count: it reads templates, prepares statements and fills caches.
    for number in range(rounds + 1):
        for at, (title, request) in enumerate(many_requests.items()):
            if at % _PAGES_PER_LOOK_UP == 0:
                (look_up_us,) = _cpu_us({many: look_ups})
            requests_of = {many: [request]} | ({few: [few_requests[title]]} if title in few_requests else {})
            many_us, *few_us = _cpu_us(requests_of)
            if number:
                times[title].append((few_us[0] if few_us else None, many_us, look_up_us))
        progress(f"round {number}/{rounds}  {len(many_requests)} pages on {where}, a look-up {look_up_us:.0f} µs")
    pages = [_page_time(title, seen) for title, seen in times.items()]
    return Outcome(list(verdicts(pages, records, where)), pages)


def _check(subject: _Subject) -> list[MeasuredRequest]:
    """Return the requests that apply to this server. Raises BenchError with every page that is not shown."""
    possible = [
        one for one in measured_requests(subject.dataset) if subject.dataset.big_submission_id or not one.is_big
    ]
    statuses = {f"{one.title} ({one.target})": subject.status(one.request(subject.dataset)) for one in possible}
    if wrong := [f"{name}: {status.decode()}" for name, status in statuses.items() if status != b"200"]:
        raise BenchError("pages were not shown:\n" + "\n".join(wrong))
    return possible


def _cpu_us(requests_of: dict[_Subject, list[bytes]]) -> list[float]:
    """Return the processor time of one request of each, in microseconds. Requests are sent in turn, repeatedly."""
    requests = {subject: cycle(of) for subject, of in requests_of.items()}
    before_s = [subject.cpu_s() for subject in requests_of]
    begun_s, count, spent_s = perf_counter(), 0, [0.0]
    while min(spent_s) < _MIN_CPU_S and perf_counter() < begun_s + _MAX_DURATION_S:
        until_s = perf_counter() + _SLICE_S
        while perf_counter() < until_s:
            for subject, of in requests.items():
                subject.call_all(of)
            count += _CONCURRENCY
        spent_s = [subject.cpu_s() - before for subject, before in zip(requests_of, before_s, strict=True)]
    return [spent / count * 1e6 for spent in spent_s]


def _page_time(title: str, seen: Sequence[tuple[float | None, float, float]]) -> PageTime:
    few_us = [few for few, _, _ in seen if few is not None]
    many_us = [many for _, many, _ in seen]
    return PageTime(
        title=title,
        few_us=spread(few_us) if few_us else None,
        many_us=spread(many_us),
        slower=_ratios(many_us, few_us) if few_us else None,
        look_ups=_ratios(many_us, [look_up for _, _, look_up in seen]),
    )


def _ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    # A page can cost less than one tick of the kernel's clock: avoid dividing by zero.
    return spread([one / max(other, 1.0) for one, other in zip(above, below, strict=True)])


def verdicts(pages: Sequence[PageTime], records: tuple[int, int], where: str) -> Iterator[Verdict]:
    """Yield the verdict on the page that grows most, and the one on the page that costs most."""
    growth = [(one.slower, one) for one in pages if one.slower is not None]
    slower, page = max(growth, key=lambda one: one[0].median)
    yield Verdict(
        title=f"pages on {where}, the worst: server time at {records[1]} records against {records[0]}",
        figure=slower,
        unit="x",
        target=Target(MAX_SLOWER, at_least=False),
        detail=f"`{page.title}`; the median page of {len(growth)}: {median(one.median for one, _ in growth):.2f} x",
    )
    page = max(pages, key=lambda one: one.look_ups.median)
    yield Verdict(
        title=f"pages on {where}, the worst: server time against one look-up",
        figure=page.look_ups,
        unit="x",
        target=Target(MAX_LOOK_UPS, at_least=False),
        detail=f"`{page.title}`, {page.many_us.median / 1000:.1f} ms; "
        f"the median page of {len(pages)}: {median(one.look_ups.median for one in pages):.1f} x",
    )
