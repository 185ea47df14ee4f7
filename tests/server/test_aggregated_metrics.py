"""The sum of the metrics of several processes (docs/interface.md section D10)."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stoplist.server.aggregated_metrics import AggregatedMetrics
from stoplist.web.metrics import COMMON_PREFIXES, MetricFamily, families_of
from stoplist.web.metrics_page import send_page


class ProcessMetrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("requests", "Requests.", ["route"], registry=self.registry)
        self.alarms = Counter("alarms", "Alarms.", registry=self.registry)
        self.seconds = Histogram("seconds", "Time.", ["route"], buckets=(1, 2), registry=self.registry)
        self.waiting = Gauge("waiting", "Requests that wait.", registry=self.registry)

    def families(self) -> list[MetricFamily]:
        return families_of(self.registry)


def page(metrics: AggregatedMetrics) -> dict[str, float]:
    """Return what Prometheus reads: every sample by name and labels."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_counters_and_gauges_of_processes_are_summed() -> None:
    """They may have labels; a label that only one process has is kept."""
    metrics, first, second = AggregatedMetrics(), ProcessMetrics(), ProcessMetrics()
    first.requests.labels("/a").inc(2)
    second.requests.labels("/a").inc(3)
    second.requests.labels("/b").inc(4)
    first.alarms.inc()
    first.waiting.set(5)
    second.waiting.set(6)
    metrics.update(1, first.families())
    metrics.update(2, second.families())
    samples = page(metrics)
    assert (samples["requests_total /a"], samples["requests_total /b"]) == (5, 4)
    assert (samples["alarms_total"], samples["waiting"]) == (1, 11)
    assert not [name for name in samples if "_created" in name], "the sum has no creation time"


@pytest.mark.parametrize("prefix", COMMON_PREFIXES)
def test_of_what_all_measure_the_greatest_figure_counts(prefix: str) -> None:
    """Such as how far keys are behind: the sum would be a multiple."""
    metrics = AggregatedMetrics()
    name = f"{prefix}figure"
    for process, value in ((1, 5.0), (2, 7.0), (3, 6.0)):
        metrics.update(process, [MetricFamily(name, "gauge", "text", [(name, {"channel": "email"}, value)])])
    assert page(metrics) == {f"{name} email": 7}


def test_histograms_are_summed() -> None:
    """Each bucket by itself, in the order that Prometheus requires."""
    metrics, first, second = AggregatedMetrics(), ProcessMetrics(), ProcessMetrics()
    for process, took_s in ((first, 0.5), (second, 1.5), (second, 9.0)):
        process.seconds.labels("/a").observe(took_s)
    metrics.update(1, first.families())
    metrics.update(2, second.families())
    samples = {name: value for name, value in page(metrics).items() if name.startswith("seconds")}
    assert samples == {
        "seconds_bucket 1.0 /a": 1,
        "seconds_bucket 2.0 /a": 2,
        "seconds_bucket +Inf /a": 3,
        "seconds_count /a": 3,
        "seconds_sum /a": 11,
    }
    assert [name.split(" ")[1] for name in samples][:3] == ["1.0", "2.0", "+Inf"]


def test_an_update_replaces_the_previous_one() -> None:
    metrics, process = AggregatedMetrics(), ProcessMetrics()
    for _ in range(3):
        process.alarms.inc()
        metrics.update(1, process.families())
    assert page(metrics)["alarms_total"] == 3


def test_counters_of_an_ended_process_stay_and_gauges_go() -> None:
    """A process that never reported adds nothing, and its replacement begins at 0."""
    metrics, process, next_one = AggregatedMetrics(), ProcessMetrics(), ProcessMetrics()
    process.requests.labels("/a").inc(7)
    process.seconds.labels("/a").observe(1.5)
    process.waiting.set(3)
    metrics.update(1, process.families())
    metrics.end(1)
    metrics.end(2)
    next_one.requests.labels("/a").inc()
    metrics.update(3, next_one.families())
    samples = page(metrics)
    assert (samples["requests_total /a"], samples["seconds_count /a"], samples["waiting"]) == (8, 1, 0)
    metrics.end(3)
    assert "waiting" not in page(metrics)
    assert page(metrics)["requests_total /a"] == 8


STEPS = st.lists(st.tuples(st.sampled_from(("count", "report", "end")), st.integers(0, 2)), max_size=40)


@given(STEPS)
def test_no_counter_ever_falls(steps: list[tuple[str, int]]) -> None:
    """The sum includes everything that ended processes reported, in any order of counts, reports and ends."""
    metrics = AggregatedMetrics()
    processes = [ProcessMetrics() for _ in range(3)]
    numbers = [0, 1, 2]
    reported = [0.0, 0.0, 0.0]
    of_ended = previous = 0.0
    for step, slot in steps:
        if step == "count":
            processes[slot].requests.labels("/a").inc()
        elif step == "report":
            metrics.update(numbers[slot], processes[slot].families())
            reported[slot] = processes[slot].registry.get_sample_value("requests_total", {"route": "/a"}) or 0.0
        else:
            metrics.end(numbers[slot])
            of_ended, reported[slot] = of_ended + reported[slot], 0.0
            processes[slot], numbers[slot] = ProcessMetrics(), max(numbers) + 1
        total = page(metrics).get("requests_total /a", 0.0)
        assert total == of_ended + sum(reported)
        assert total >= previous
        previous = total


def test_prometheus_can_read_the_page() -> None:
    """Each family is described once, before its samples, and no sample comes twice."""
    metrics = AggregatedMetrics()
    for number in range(3):
        process = ProcessMetrics()
        for route in ("/b", "/a"):
            process.requests.labels(route).inc()
            process.seconds.labels(route).observe(1)
        metrics.update(number, process.families())
    registry = CollectorRegistry()
    registry.register(metrics)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(send_page(send, registry))
    lines = sent[1]["body"].decode().splitlines()
    described = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    names = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert sorted(described) == sorted(set(described))
    assert len(names) == len(set(names))
    assert {"requests_total", "alarms_total", "seconds", "waiting"} == set(described)
