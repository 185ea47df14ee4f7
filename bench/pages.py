"""The rows on the admin pages at ten thousand records and at a million, each against a look-up in the same run.

A page's time is the processor time of the server and PostgreSQL together, because elapsed time depends on other
programs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter

from bench import dataset
from bench.dataset import CHANNEL, Dataset
from bench.product import SQLITE, DatabaseKind, Deployment, ProductServer, deployed
from bench.requests import measured_requests
from bench.rounds import Run
from bench.sample_people import People
from bench.scripts import get
from bench.server import BenchError, Caller
from bench.verdict import PageTime, Series, Verdict, verdict

FEW = 10_000
_MAX_ROUNDS = 5
_CONCURRENCY = 4
# The kernel counts processor time in hundredths of a second.
_MIN_CPU_S, _MAX_DURATION_S, _SLICE_S = 0.15, 5.0, 0.1
_TOKENS, _ADDRESSES = 4, 500
_PAGES_PER_LOOK_UP = 6
# These look through the feed for up to a second, and say how far they came.
_BOUND_BY_TIME = (", a filter that finds nothing", ", nothing within many days")


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts; on PostgreSQL with copies of the same datasets."""
    sizes = (FEW, run.parameters.records)
    with ExitStack() as running:
        filled = [_filled(run, running, database, records) for records in sizes]
        few, many = (running.enter_context(one.server(with_database=True)) for one, _ in filled)
        few_requests, requests = (
            _requests(server, made) for server, (_, made) in zip((few, many), filled, strict=True)
        )
        look_ups = _look_ups(many, filled[1][1])
        callers = {one: [running.enter_context(one.caller()) for _ in range(_CONCURRENCY)] for one in (few, many)}
        look_up_us = 0.0

        def measure_us(number: int) -> dict[tuple[str, str], float]:
            nonlocal look_up_us
            seen: dict[tuple[str, str], float] = {}
            for at, (title, request) in enumerate(requests.items()):
                if at % _PAGES_PER_LOOK_UP == 0:
                    (look_up_us,) = _cpu_us(callers, {many: look_ups})
                # A page can cost less than one tick of the kernel's clock: avoid dividing by zero.
                seen[title, "look-up"] = max(look_up_us, 1.0)
                both = {many: [request]} | ({few: [few_requests[title]]} if title in few_requests else {})
                seen |= {(title, name): us for name, us in zip(("many", "few"), _cpu_us(callers, both), strict=False)}
            run.progress(f"round {number}  {len(requests)} pages on {database.value}, a look-up {look_up_us:.0f} µs")
            return seen

        # The first round reads templates, prepares statements and fills caches.
        seen = run.rounds(measure_us, count=min(run.parameters.rounds, _MAX_ROUNDS))
    run.pages[database.value] = pages = [_page_time(title, seen) for title in requests]
    yield from verdicts(pages, sizes, database.value)


def verdicts(pages: Sequence[PageTime], records: tuple[int, int], where: str) -> Iterator[Verdict]:
    """Yield the verdict on the page that grows most, and the one on the page that costs most."""
    pages = [one for one in pages if not one.title.endswith(_BOUND_BY_TIME)]
    growth = [(one.slower, one.title) for one in pages if one.slower is not None]
    slower, title = max(growth, key=lambda one: one[0].median)
    detail = f"`{title}`; the median page of {len(growth)}: {median(one.median for one, _ in growth):.2f} x"
    title = f"pages on {where}, the worst: server time at {records[1]} records against {records[0]}"
    yield verdict(title, slower, "x", detail, at_most=1.5)
    page = max(pages, key=lambda one: one.look_ups.median)
    typical = median(one.look_ups.median for one in pages)
    detail = f"`{page.title}`, {page.many_us / 1000:.1f} ms; the median page of {len(pages)}: {typical:.1f} x"
    title = f"pages on {where}, the worst: server time against one look-up"
    yield verdict(title, page.look_ups, "x", detail, at_most=100.0)


@cache
def _filled_on_sqlite(folder: Path, records: int) -> tuple[Deployment, Dataset]:
    """Return a deployment with that many records, made once, and what its pages can show."""
    with deployed(SQLITE, folder, partners=()) as deployment:
        return deployment, dataset.fill(deployment.file, records)


def _filled(run: Run, running: ExitStack, database: DatabaseKind, records: int) -> tuple[Deployment, Dataset]:
    """Return a deployment, on PostgreSQL a copy that ends with `running`. No server may run on the one on SQLite."""
    run.progress(f"a dataset of {records} records for the pages on {database.value}")
    source, made = _filled_on_sqlite(run.scratch / f"pages-{records}", records)
    if database is SQLITE:
        return source, made
    copy = running.enter_context(deployed(database, source.folder, partners=()))
    copy.copy_from(source.file)
    return copy, made


def _requests(server: ProductServer, made: Dataset) -> dict[str, bytes]:
    """Return the requests that apply to this server by title. Raises BenchError with every page not shown."""
    possible = [one for one in measured_requests(made) if made.big_submission_id or not one.is_big]
    requests = {one.title: one.request(made) for one in possible}
    statuses = {title: server.send_once(request).status.decode() for title, request in requests.items()}
    if wrong := [f"{title}: {status}" for title, status in statuses.items() if status != "200"]:
        raise BenchError("pages were not shown:\n" + "\n".join(wrong))
    return requests


def _look_ups(server: ProductServer, made: Dataset) -> list[bytes]:
    """Return look-ups of many addresses, by a key with a high ceiling."""
    tokens = cycle([server.new_token(made.partner) for _ in range(_TOKENS)])
    acts = People(CHANNEL, seed=1).acts(_ADDRESSES)
    return [get(f"/api/v1/unsubscribe/{CHANNEL}?address={act.address}", next(tokens)) for act in acts]


def _page_time(title: str, seen: Mapping[tuple[str, str], Series]) -> PageTime:
    many_us, few_us = seen[title, "many"], seen.get((title, "few"))
    return PageTime(
        title=title,
        few_us=few_us,
        many_us=many_us,
        slower=many_us / Series(max(one, 1.0) for one in few_us.figures) if few_us else None,
        look_ups=many_us / seen[title, "look-up"],
    )


def _cpu_us(
    callers: Mapping[ProductServer, Sequence[Caller]], requests: Mapping[ProductServer, list[bytes]]
) -> list[float]:
    """Return the processor time of one request of each, in microseconds. Requests are sent in turn, repeatedly."""
    endless = {one: cycle(of) for one, of in requests.items()}
    before_s = [one.cpu_s() for one in requests]
    begun_s, count, spent_s = perf_counter(), 0, [0.0]
    while min(spent_s) < _MIN_CPU_S and perf_counter() < begun_s + _MAX_DURATION_S:
        until_s = perf_counter() + _SLICE_S
        while perf_counter() < until_s:
            for one, of in endless.items():
                for caller in callers[one]:
                    caller.send(next(of))
                for caller in callers[one]:
                    caller.receive().require()
            count += _CONCURRENCY
        spent_s = [one.cpu_s() - before for one, before in zip(requests, before_s, strict=True)]
    return [spent / count * 1e6 for spent in spent_s]
