"""Metrics that are read when Prometheus asks: answers, the stores, the process, what chores measured, and propagation.

Source: docs/interface.md section D10.
"""

import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from stoplist.db import Database
from stoplist.limits.limiter import Limiter
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.worst_keys import WorstKeys

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_BUCKETS_NS = [round(bound_s * 1e9) for bound_s in _BUCKETS_S]

_OWN_MEMORY = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Measured:
    """The latest measurements of a chore. Times are seconds since 1970 UTC; None: not known, or not there.

    `outbox_oldest_s` is the age of an entry.
    """

    def __init__(self) -> None:
        self.is_store_lost = False
        self.certificate_end_s: float | None = None
        self.backup_s: float | None = None
        self.outbox_oldest_s: float | None = None


class _Answers(msgspec.Struct):
    """Answers of one route and status: how many took how long, and the sum of their times."""

    count: int
    buckets: list[int]
    sum_ns: int


class AnswerCollector(Collector):
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


class StoreCollector(Collector):
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


class ProcessCollector(Collector):
    """Reads what the process uses of the machine."""

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("stoplist_cpu_seconds", "Processor time.", value=time.process_time())
        with suppress(OSError):  # only Linux has it
            pages = int(_OWN_MEMORY.read_text().split()[1])
            yield GaugeMetricFamily("stoplist_memory_bytes", "Resident memory.", value=pages * _PAGE_BYTES)


class MeasuredCollector(Collector):
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
        if self._measured.outbox_oldest_s is not None:
            yield GaugeMetricFamily(
                "stoplist_outbox_oldest_seconds",
                "For how long the oldest entry for the audit, or notice, has waited beside its feed; 0 if none does.",
                value=self._measured.outbox_oldest_s,
            )


class PropagationCollector(Collector):
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
