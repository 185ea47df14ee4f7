"""The admin pages at ten thousand records and at a million, each against a look-up of one address in the same run.

A page's time is processor time, of the server and of PostgreSQL together: how long it takes depends on what else runs.
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
from bench.history import CHANNEL, Past
from bench.product import Deployment
from bench.requests import Ask, asks
from bench.rounds import Pace
from bench.sample_people import People
from bench.scripts import client_credentials, get
from bench.server import BenchError, Server, acquire
from bench.verdict import PageTime, Spread, Target, Verdict, spread

FEW = 10_000
MAX_SLOWER, MAX_LOOK_UPS = 1.5, 40.0
_MOST_ROUNDS = 5
_AT_ONCE = 4
# The kernel counts processor time in hundredths of a second.
_LEAST_CPU_S, _LONGEST_S, _LOOKED_AT_S = 0.15, 5.0, 0.1
_TOKENS, _ADDRESSES = 4, 500
_BETWEEN_LOOK_UPS = 6

Say = Callable[[str], None]


class Outcome(msgspec.Struct, frozen=True):
    """The verdicts, which are those on the worst pages, and every page."""

    verdicts: list[Verdict]
    pages: list[PageTime]


class Pasts:
    """The two deployments: made once on SQLite, and copied to PostgreSQL from there."""

    def __init__(self, scratch: Path, records: int, say: Say) -> None:
        self.records = (FEW, records)
        self._scratch, self._say = scratch, say
        self._made: dict[int, tuple[Deployment, Past]] = {}

    def on_sqlite(self, records: int) -> tuple[Deployment, Past]:
        """The deployment with so many records, and what is in it."""
        if records not in self._made:
            self._say(f"making a past of {records} records for the pages")
            deployment = Deployment(self._scratch / f"pages-{records}")
            deployment.folder.mkdir()
            deployment.run("migrate")
            self._made[records] = deployment, history.fill(deployment.database, records)
        return self._made[records]

    def on_postgresql(self, records: int, running: ExitStack) -> tuple[Deployment, Past]:
        """The same in a PostgreSQL of its own, for as long as `running`. No server runs on that on SQLite."""
        source, known = self.on_sqlite(records)
        settings = running.enter_context(postgresql.settings())
        deployment = Deployment(source.folder, settings)
        deployment.run("migrate")
        self._say(f"copying {records} records to PostgreSQL for the pages")
        url = settings["STOPLIST_DATABASE_URL"]
        deployment.run("copy", "--from", f"sqlite:///{source.database}", "--to", url, "--json")
        return deployment, known


class _Subject:
    """A server over one of the two databases, asked by some at once; `cpu_s` is whose processor time counts."""

    def __init__(self, server: Server, known: Past, running: ExitStack, cpu_s: Callable[[], float]) -> None:
        self.past, self.cpu_s, self._server = known, cpu_s, server
        self._callers = [running.enter_context(Caller(port=server.port, ca=server.ca)) for _ in range(_AT_ONCE)]

    def acquire(self, requests: Iterator[bytes]) -> None:
        """Everybody is answered. Raises BenchError where the status is not 200."""
        for caller in self._callers:
            caller.send(next(requests))
        for caller in self._callers:
            caller.receive()

    def status(self, request: bytes) -> bytes:
        """The status of an answer, whichever it is."""
        return acquire(request, port=self._server.port, ca=self._server.ca).status

    def look_ups(self) -> list[bytes]:
        """Look-ups of many addresses, by a key whose ceiling is out of the way."""
        request = client_credentials(self.past.partner)
        answers = [acquire(request, port=self._server.port, ca=self._server.ca) for _ in range(_TOKENS)]
        tokens = [json.loads(answer.body)["access_token"] for answer in answers]
        return [
            get(f"/api/v1/unsubscribe/{CHANNEL}?address={act.address}", tokens[number % _TOKENS])
            for number, act in enumerate(People(CHANNEL, seed=1).acts(_ADDRESSES))
        ]


def on_sqlite(pace: Pace, pasts: Pasts, say: Say) -> Outcome:
    """The pages on SQLite."""
    made = [pasts.on_sqlite(records) for records in pasts.records]
    with ExitStack() as running:
        subjects = []
        for deployment, known in made:
            server = running.enter_context(deployment.server())
            subjects.append(_Subject(server, known, running, server.cpu_s))
        return _measured(pace, subjects, pasts.records, say, where="SQLite")


def on_postgresql(pace: Pace, pasts: Pasts, say: Say) -> Outcome:
    """The pages on PostgreSQL."""
    with ExitStack() as running:
        subjects = []
        for deployment, known in [pasts.on_postgresql(records, running) for records in pasts.records]:
            server = running.enter_context(deployment.server())
            database = PostgresqlTime(deployment.settings["STOPLIST_DATABASE_URL"])
            subjects.append(_Subject(server, known, running, _together(server.cpu_s, database.cpu_s)))
        return _measured(pace, subjects, pasts.records, say, where="PostgreSQL")


def _together(*parts: Callable[[], float]) -> Callable[[], float]:
    return lambda: sum(part() for part in parts)


def _measured(pace: Pace, subjects: Sequence[_Subject], records: tuple[int, int], say: Say, *, where: str) -> Outcome:
    few, many = subjects
    asked_few = {one.title: one.request(few.past) for one in _check(few)}
    asked_many = {one.title: one.request(many.past) for one in _check(many)}
    look_ups = many.look_ups()
    times: dict[str, list[tuple[float | None, float, float]]] = defaultdict(list)
    rounds = min(pace.rounds, _MOST_ROUNDS)
    # As elsewhere the first round does not count: templates are read, statements prepared, caches filled.
    for number in range(rounds + 1):
        for at, (title, request) in enumerate(asked_many.items()):
            if at % _BETWEEN_LOOK_UPS == 0:
                (look_up_us,) = _cpu_us({many: look_ups})
            asked = {many: [request]} | ({few: [asked_few[title]]} if title in asked_few else {})
            many_us, *few_us = _cpu_us(asked)
            if number:
                times[title].append((few_us[0] if few_us else None, many_us, look_up_us))
        say(f"round {number}/{rounds}  {len(asked_many)} pages on {where}, a look-up {look_up_us:.0f} µs")
    pages = [_page_time(title, seen) for title, seen in times.items()]
    return Outcome(list(verdicts(pages, records, where)), pages)


def _check(subject: _Subject) -> list[Ask]:
    """What this one can be asked. Raises BenchError with every page that is not shown, before anything is measured."""
    possible = [one for one in asks(subject.past) if subject.past.big_submission_id or not one.is_big]
    said = {f"{one.title} ({one.target})": subject.status(one.request(subject.past)) for one in possible}
    if wrong := [f"{name}: {status.decode()}" for name, status in said.items() if status != b"200"]:
        raise BenchError("pages were not shown:\n" + "\n".join(wrong))
    return possible


def _cpu_us(asked: dict[_Subject, list[bytes]]) -> list[float]:
    """The processor time of each for one request, in microseconds: they are asked in turn, again and again."""
    requests = {subject: cycle(of) for subject, of in asked.items()}
    before_s = [subject.cpu_s() for subject in asked]
    begun_s, count, spent_s = perf_counter(), 0, [0.0]
    while min(spent_s) < _LEAST_CPU_S and perf_counter() < begun_s + _LONGEST_S:
        until_s = perf_counter() + _LOOKED_AT_S
        while perf_counter() < until_s:
            for subject, of in requests.items():
                subject.acquire(of)
            count += _AT_ONCE
        spent_s = [subject.cpu_s() - before for subject, before in zip(asked, before_s, strict=True)]
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
    # A page that costs less than one tick of the kernel's clock has cost something all the same.
    return spread([one / max(other, 1.0) for one, other in zip(above, below, strict=True)])


def verdicts(pages: Sequence[PageTime], records: tuple[int, int], where: str) -> Iterator[Verdict]:
    """One on the page that grows most, and one on the page that costs most."""
    grown = [(one.slower, one) for one in pages if one.slower is not None]
    slower, page = max(grown, key=lambda one: one[0].median)
    yield Verdict(
        title=f"pages on {where}, the worst: server time at {records[1]} records against {records[0]}",
        figure=slower,
        unit="x",
        target=Target(MAX_SLOWER, at_least=False),
        detail=f"`{page.title}`; the median page of {len(grown)}: {median(one.median for one, _ in grown):.2f} x",
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
