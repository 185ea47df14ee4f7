"""The metrics for Prometheus: counts and durations, whose labels never hold data of a client.

Source: docs/interface.md section D10.
"""

from collections.abc import Callable

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, samples

from stoplist.db import Database
from stoplist.limits.limiter import Limiter
from stoplist.notices.model import MAIL, WEBHOOK
from stoplist.notices.outcome import FAILED, GIVEN_UP, SENT
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.worst_keys import WorstKeys
from stoplist.unsubscribes.model import Submission
from stoplist.web.metric_collectors import (
    AnswerCollector,
    Measured,
    MeasuredCollector,
    ProcessCollector,
    PropagationCollector,
    StoreCollector,
)
from stoplist.web.metrics_page import send_page
from stoplist.web.request_context import Receive, RequestContext, Scope, Send

COMMON_PREFIXES = tuple(f"stoplist_{noun}_" for noun in ("propagation", "certificate", "backup", "outbox"))
"""The beginnings of the names of metrics that each process measures for the whole deployment: the greatest counts."""

REQUEST, CHORE, IMPORT = "request", "chore", "import"
"""The kinds of work in which an error of the program may end something."""

MetricSample = tuple[str, dict[str, str], float]


class MetricFamily(msgspec.Struct, frozen=True):
    """A metric with its samples: their names, labels and values."""

    name: str
    kind: str
    text: str
    samples: list[MetricSample]


class Metrics:
    """The metrics of one process, including the counts of the database driver and the limiter."""

    def __init__(
        self, database: Database, limiter: Limiter, held: HeldRequests, worst_keys: WorstKeys | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(StoreCollector(database, limiter, held))
        self.registry.register(ProcessCollector())
        self.measured = Measured()
        self.registry.register(MeasuredCollector(self.measured))
        self._answers = AnswerCollector()
        self.registry.register(self._answers)
        if worst_keys is not None:
            self.registry.register(PropagationCollector(worst_keys))
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
