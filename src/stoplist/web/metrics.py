"""The metrics for Prometheus: counts and durations, whose labels never hold data of a client.

Source: docs/interface.md section D10.
"""

from collections.abc import Iterable

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, samples
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from stoplist import ids
from stoplist.db import Database
from stoplist.limits.limiter import Limiter
from stoplist.web.request_context import Receive, RequestContext, Scope, Send

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)

MetricSample = tuple[str, dict[str, str], float]


class MetricFamily(msgspec.Struct, frozen=True):
    """A metric with its samples: their names, labels and values."""

    name: str
    kind: str
    text: str
    samples: list[MetricSample]


class Metrics:
    """The metrics of one process, including the counts of the database driver and the limiter."""

    def __init__(self, database: Database, limiter: Limiter) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_StoreCollector(database, limiter))
        self._requests = self._counter("requests", "Answered requests.", "route", "status")
        self._seconds = Histogram(
            "stoplist_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.tokens_issued = self._counter("tokens_issued", "Token pairs issued by client_credentials.")
        self.refreshes = self._counter("refreshes", "Token pairs issued by refresh_token.")
        self.reuse_alarms = self._counter(
            "reuse_alarms", "Rotated refresh tokens presented again, each revoking every token of its client."
        )
        self.limit_refusals = self._counter("limit_refusals", "Requests refused by a rate limit.", "route")
        self.store_errors = self._counter("store_errors", "Requests answered 503 because the database failed.")
        # `labels` takes a lock for every look-up; there are few children, so keep them.
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def count_answer(self, context: RequestContext, took_ns: int) -> None:
        """Count one answered request."""
        key = (context.route, context.status)
        children = self._children.get(key)
        if children is None:
            children = self._requests.labels(*map(str, key)), self._seconds.labels(context.route)
            self._children[key] = children
        children[0].inc()
        children[1].observe(took_ns / 1e9)
        if context.status == 429:
            self.limit_refusals.labels(context.route).inc()

    def count_protocol_answer(self, status: int) -> None:
        """Count an answer of the HTTP protocol itself: to a request that is malformed, too large or too late."""
        self._requests.labels("none", str(status)).inc()

    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as an ASGI application, with all metrics at every path."""
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


async def send_page(send: Send, registry: CollectorRegistry) -> None:
    """Answer with all metrics of a registry."""
    body = generate_latest(registry)
    headers = [
        (b"content-type", CONTENT_TYPE_LATEST.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", ids.new_request_id().encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _StoreCollector(Collector):
    """Reads the current counts of the database driver and the limiter when metrics are collected."""

    def __init__(self, database: Database, limiter: Limiter) -> None:
        self._database, self._limiter = database, limiter

    def collect(self) -> Iterable[Metric]:
        yield from self._of_database()
        yield from self._of_limits()

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
