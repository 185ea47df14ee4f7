"""The metrics for Prometheus: counts and durations, whose labels never hold data of a client.

Source: docs/interface.md section D10.
"""

import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, samples
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from stoplist import ids
from stoplist.db import Database
from stoplist.errors import ANSWERS, MethodNotAllowed, NotFound
from stoplist.limits.limiter import Limiter
from stoplist.notices.model import MAIL, WEBHOOK
from stoplist.notices.outcome import FAILED, GIVEN_UP, SENT
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.worst_keys import WorstKeys
from stoplist.unsubscribes.model import Submission
from stoplist.web.request_context import AsgiApp, Headers, Receive, RequestContext, Scope, Send, api_envelope

METRICS_PATH = "/metrics"
COMMON_PREFIXES = tuple(f"stoplist_{noun}_" for noun in ("propagation", "certificate", "backup"))
"""Every process measures these for all; their maximum counts."""

REQUEST, CHORE, IMPORT = "request", "chore", "import"
"""The kinds of work in which an error of the program may end something."""

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_BUCKETS_NS = [round(bound_s * 1e9) for bound_s in _BUCKETS_S]

_OWN_MEMORY = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

MetricSample = tuple[str, dict[str, str], float]


class MetricFamily(msgspec.Struct, frozen=True):
    """A metric with its samples: their names, labels and values."""

    name: str
    kind: str
    text: str
    samples: list[MetricSample]


class Measured:
    """The latest measurements of a chore. Times are seconds since 1970 UTC; None: not known, or not there."""

    def __init__(self) -> None:
        self.is_store_lost = False
        self.certificate_end_s: float | None = None
        self.backup_s: float | None = None


class Metrics:
    """The metrics of one process, including the counts of the database driver and the limiter."""

    def __init__(
        self, database: Database, limiter: Limiter, held: HeldRequests, worst_keys: WorstKeys | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_StoreCollector(database, limiter, held))
        self.registry.register(_ProcessCollector())
        self.measured = Measured()
        self.registry.register(_MeasuredCollector(self.measured))
        self._answers = _AnswerCollector()
        self.registry.register(self._answers)
        if worst_keys is not None:
            self.registry.register(_PropagationCollector(worst_keys))
        self.tokens_issued = self._counter("tokens_issued", "Token pairs issued by client_credentials.")
        self.refreshes = self._counter("refreshes", "Token pairs issued by refresh_token.")
        self.reuse_alarms = self._counter(
            "reuse_alarms", "Rotated refresh tokens presented again, each revoking every token of its client."
        )
        self.limit_refusals = self._counter("limit_refusals", "Requests refused by a rate limit.", "route")
        self.link_acts = self._counter("link_acts", "Opt-outs by links, stored or already known.", "kind")
        self.unusable_links = self._counter(
            "unusable_links", "Clicks on opt-out links without an acceptable address: nobody was opted out."
        )
        self.store_errors = self._counter("store_errors", "Requests answered 503 because the database failed.")
        self.failures_of_store = 0
        self._items = self._counter("items", "Items of submissions that were answered.", "channel", "result")
        self._defects = self._counter(
            "defects", "Requests, chores and work on imports that ended in an error of the program.", "where"
        )
        self._imports = self._counter("import_work", "Work on imports of the pages that has ended.", "outcome")
        self._imports_running = Gauge(
            "stoplist_imports_running", "Work on imports of the pages that is done now.", registry=self.registry
        )
        self._notices = {
            SENT: self._counter("notices_delivered", "Notices that were delivered.", "via"),
            FAILED: self._counter("notice_failures", "Attempts to deliver a notice that failed.", "via"),
            GIVEN_UP: self._counter("notices_given_up", "Notices that could not be delivered in their time.", "via"),
        }
        # Alarms watch these: Prometheus sees no increase in a series that begins with its first event.
        for where in (REQUEST, CHORE, IMPORT):
            self._defects.labels(where)
        for counter in self._notices.values():
            for way in (WEBHOOK, MAIL):
                counter.labels(way)

    def count_answer(self, context: RequestContext, took_ns: int) -> None:
        """Count one answered request."""
        self._answers.count(context.route, context.status, took_ns - context.held_ns)
        if context.status == 429:
            self.limit_refusals.labels(context.route).inc()

    def count_store_error(self) -> None:
        """Count a request that failed because of the database."""
        self.store_errors.inc()
        self.failures_of_store += 1

    def count_notice(self, outcome: str, way: str) -> None:
        """Count the outcome of an attempt to deliver a notice; one that was given up failed, too."""
        self._notices[outcome].labels(way).inc()
        if outcome == GIVEN_UP:
            self._notices[FAILED].labels(way).inc()

    def count_defect(self, where: str) -> None:
        """Count an error of the program: in a REQUEST, in a CHORE, or in work on an IMPORT."""
        self._defects.labels(where).inc()

    def count_import(self, outcome: str) -> None:
        """Count work on an import that has ended."""
        self._imports.labels(outcome).inc()
        if outcome == "failed":
            self.count_defect(IMPORT)

    def show_imports(self, running: Callable[[], int]) -> None:
        """Show from now on how much work on imports is `running`."""
        self._imports_running.set_function(running)

    def count_submission(self, channel: str, submission: Submission) -> None:
        """Count the items of a submission by their results."""
        stored = submission.created + submission.updated
        for result, count in (
            ("stored", stored),
            ("unchanged", submission.unchanged),
            ("outranked", submission.outranked),
            ("left_out", submission.received - stored - submission.unchanged - submission.outranked),
        ):
            if count:
                self._items.labels(channel, result).inc(count)

    def count_protocol_answer(self, status: int) -> None:
        """Count an answer of the HTTP protocol itself: to a request that is malformed, too large or too late."""
        self._answers.count("none", status, None)

    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as an ASGI application, with all metrics."""
        await send_page(send, self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"stoplist_{name}", text, labels, registry=self.registry)


def families_of(registry: CollectorRegistry) -> list[MetricFamily]:
    """Return the current metrics of the registry, to be added to those of other processes."""
    return [
        MetricFamily(metric.name, metric.type, metric.documentation, [_metric_sample(sample) for sample in kept])
        for metric in registry.collect()
        if (kept := [sample for sample in metric.samples if not sample.name.endswith("_created")])
    ]


def _metric_sample(sample: samples.Sample) -> MetricSample:
    return sample.name, sample.labels, float(sample.value)


def metrics_address(page: AsgiApp) -> AsgiApp:
    """Return the ASGI application of the metrics address, which answers GET and HEAD of `/metrics` with this page."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != METRICS_PATH:
            await _refuse(send, NotFound(f"There is nothing at this path: the metrics are at {METRICS_PATH}."))
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD"))
        else:
            await page(scope, receive, send)

    return answer


async def send_page(send: Send, registry: CollectorRegistry) -> None:
    """Answer with all metrics of a registry."""
    await _send(send, 200, generate_latest(registry), [(b"content-type", CONTENT_TYPE_LATEST.encode())])


async def _refuse(send: Send, error: NotFound | MethodNotAllowed) -> None:
    headers = [(b"content-type", b"application/json")]
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allow.encode()))
    await _send(send, ANSWERS[type(error)].status, msgspec.json.encode(api_envelope(error)), headers)


async def _send(send: Send, status: int, body: bytes, headers: Headers) -> None:
    headers += [(b"content-length", str(len(body)).encode()), (b"x-request-id", ids.new_request_id().encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Answers(msgspec.Struct):
    """Answers of one route and status: how many took how long, and the sum of their times."""

    count: int
    buckets: list[int]
    sum_ns: int


class _AnswerCollector(Collector):
    """Counts answers in plain integers, without the lock of each child of a `Histogram`: every request passes here."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int], _Answers] = {}

    def count(self, route: str, status: int, took_ns: int | None) -> None:
        """Count an answer; one of the protocol itself has no time."""
        answers = self._answers.get((route, status))
        if answers is None:
            answers = self._answers[route, status] = _Answers(0, [0] * (len(_BUCKETS_NS) + 1), 0)
        answers.count += 1
        if took_ns is not None:
            answers.buckets[bisect_left(_BUCKETS_NS, took_ns)] += 1
            answers.sum_ns += took_ns

    def collect(self) -> Iterable[Metric]:
        counts = CounterMetricFamily("stoplist_requests", "Answered requests.", labels=["route", "status"])
        seconds = HistogramMetricFamily(
            "stoplist_request_seconds",
            "Time from the head of a request to the end of its answer, without the time for which it was held.",
            labels=["route"],
        )
        routes = defaultdict[str, list[_Answers]](list)
        for (route, status), answers in self._answers.items():
            counts.add_metric([route, str(status)], answers.count)
            routes[route].append(answers)
        for route, all_answers in routes.items():
            buckets = [sum(bucket) for bucket in zip(*(answers.buckets for answers in all_answers), strict=True)]
            if sum(buckets):
                bounds = zip([*map(floatToGoString, _BUCKETS_S), "+Inf"], accumulate(buckets), strict=True)
                seconds.add_metric([route], list(bounds), sum(answers.sum_ns for answers in all_answers) / 1e9)
        yield from (counts, seconds)


class _StoreCollector(Collector):
    """Reads the current counts of the database driver, the limiter and the held requests when metrics are collected."""

    def __init__(self, database: Database, limiter: Limiter, held: HeldRequests) -> None:
        self._database, self._limiter, self._held = database, limiter, held

    def collect(self) -> Iterable[Metric]:
        yield from self._of_database()
        yield from self._of_limits()
        yield GaugeMetricFamily(
            "stoplist_held_requests", "Requests that wait for a change of their feed.", value=self._held.count
        )

    def _of_database(self) -> Iterable[Metric]:
        counts = self._database.counts
        yield CounterMetricFamily("stoplist_store_writes", "Units of work written.", value=counts.writes)
        yield CounterMetricFamily("stoplist_store_commits", "Commits; one may carry many units.", value=counts.commits)
        yield CounterMetricFamily(
            "stoplist_store_write_wait_seconds",
            "Time that writers waited, from asking to the durable answer, summed.",
            value=counts.write_wait_ns / 1e9,
        )
        yield GaugeMetricFamily("stoplist_store_writers_waiting", "Units that wait now.", value=counts.waiting)
        yield GaugeMetricFamily(
            "stoplist_feeds_hanging",
            "Feeds whose reads or writes a process refuses now, because a statement ran into its deadline.",
            value=counts.hanging_feeds,
        )

    def _of_limits(self) -> Iterable[Metric]:
        health = self._limiter.health()
        yield GaugeMetricFamily(
            "stoplist_limit_store_lost",
            "Processes that count requests alone, because the shared limit store does not answer.",
            value=health.is_lost,
        )
        yield CounterMetricFamily(
            "stoplist_limits_decided_alone",
            "Requests that a process counted alone, because the shared limit store did not answer.",
            value=health.decided_alone,
        )


class _ProcessCollector(Collector):
    """Reads what the process uses of the machine."""

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("stoplist_cpu_seconds", "Processor time.", value=time.process_time())
        with suppress(OSError):  # only Linux has it
            pages = int(_OWN_MEMORY.read_text().split()[1])
            yield GaugeMetricFamily("stoplist_memory_bytes", "Resident memory.", value=pages * _PAGE_BYTES)


class _MeasuredCollector(Collector):
    """Shows what a chore has measured."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "stoplist_store_lost",
            "Processes for which the database does not answer.",
            value=self._measured.is_store_lost,
        )
        if self._measured.certificate_end_s is not None:
            yield GaugeMetricFamily(
                "stoplist_certificate_end_seconds",
                "When the certificate of this server ends, in seconds since 1970 UTC.",
                value=self._measured.certificate_end_s,
            )
        if self._measured.backup_s is not None:
            yield GaugeMetricFamily(
                "stoplist_backup_seconds",
                "When the newest backup was made by `stoplist backup`, in seconds since 1970 UTC; 0 if never.",
                value=self._measured.backup_s,
            )


class _PropagationCollector(Collector):
    """Shows the figures of the key that is furthest behind, by organization and channel."""

    def __init__(self, worst_keys: WorstKeys) -> None:
        self._worst_keys = worst_keys

    def collect(self) -> Iterable[Metric]:
        oldest = GaugeMetricFamily(
            "stoplist_propagation_oldest_seconds",
            "Age of the oldest change that some key has not taken.",
            labels=["organization", "channel"],
        )
        behind = GaugeMetricFamily(
            "stoplist_propagation_behind",
            "Changes that the key with the most has not taken; an upper bound.",
            labels=["organization", "channel"],
        )
        for feed, worst in sorted(self._worst_keys.by_feed.items()):
            oldest.add_metric(feed, worst.oldest_s)
            behind.add_metric(feed, worst.behind)
        yield from (oldest, behind)
        if self._worst_keys.limit_s is not None:
            yield GaugeMetricFamily(
                "stoplist_propagation_limit_seconds",
                "STOPLIST_PROPAGATION_HOURS: a key that lacks an older change is behind.",
                value=self._worst_keys.limit_s,
            )
