"""The metrics of several processes as one (docs/interface.md section D10)."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stoplist.server.aggregated_metrics import AggregatedMetrics
from stoplist.web.metrics import MetricFamily, families_of, send_page


class ServerProcess:
    """What one process counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("requests", "Requests.", ["route"], registry=self.registry)
        self.alarms = Counter("alarms", "Alarms.", registry=self.registry)
        self.seconds = Histogram("seconds", "Time.", ["route"], buckets=(1, 2), registry=self.registry)
        self.waiting = Gauge("waiting", "Those who wait.", registry=self.registry)

    def families(self) -> list[MetricFamily]:
        return families_of(self.registry)


def page(totals: AggregatedMetrics) -> dict[str, float]:
    """What Prometheus reads on the page: every sample by name and labels."""
    registry = CollectorRegistry()
    registry.register(totals)
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_what_several_processes_counted_is_added_up() -> None:
    """Counters and gauges, with labels and without; a label that one of them does not know is the other's."""
    totals, first, second = AggregatedMetrics(), ServerProcess(), ServerProcess()
    first.requests.labels("/a").inc(2)
    second.requests.labels("/a").inc(3)
    second.requests.labels("/b").inc(4)
    first.alarms.inc()
    first.waiting.set(5)
    second.waiting.set(6)
    totals.said(1, first.families())
    totals.said(2, second.families())
    found = page(totals)
    assert (found["requests_total /a"], found["requests_total /b"]) == (5, 4)
    assert (found["alarms_total"], found["waiting"]) == (1, 11)
    assert not [name for name in found if "_created" in name], "nobody knows since when a sum counts"


def test_buckets_sums_and_counts_of_a_histogram_are_added_up() -> None:
    """Each bucket with its own, in the order that Prometheus wants."""
    totals, first, second = AggregatedMetrics(), ServerProcess(), ServerProcess()
    for process, took_s in ((first, 0.5), (second, 1.5), (second, 9.0)):
        process.seconds.labels("/a").observe(took_s)
    totals.said(1, first.families())
    totals.said(2, second.families())
    found = {name: value for name, value in page(totals).items() if name.startswith("seconds")}
    assert found == {
        "seconds_bucket 1.0 /a": 1,
        "seconds_bucket 2.0 /a": 2,
        "seconds_bucket +Inf /a": 3,
        "seconds_count /a": 3,
        "seconds_sum /a": 11,
    }
    assert [name.split(" ")[1] for name in found][:3] == ["1.0", "2.0", "+Inf"]


def test_what_a_process_says_anew_takes_the_place_of_what_it_said() -> None:
    """It is not added to it."""
    totals, process = AggregatedMetrics(), ServerProcess()
    for _ in range(3):
        process.alarms.inc()
        totals.said(1, process.families())
    assert page(totals)["alarms_total"] == 3


def test_of_a_process_that_has_ended_the_counters_stay_and_the_gauges_go() -> None:
    """Nobody waits in it any more; one that never said a word leaves nothing, and the next begins at 0."""
    totals, process, next_one = AggregatedMetrics(), ServerProcess(), ServerProcess()
    process.requests.labels("/a").inc(7)
    process.seconds.labels("/a").observe(1.5)
    process.waiting.set(3)
    totals.said(1, process.families())
    totals.ended(1)
    totals.ended(2)
    next_one.requests.labels("/a").inc()
    totals.said(3, next_one.families())
    found = page(totals)
    assert (found["requests_total /a"], found["seconds_count /a"], found["waiting"]) == (8, 1, 0)
    totals.ended(3)
    assert "waiting" not in page(totals)
    assert page(totals)["requests_total /a"] == 8


STEPS = st.lists(st.tuples(st.sampled_from(("count", "say", "die")), st.integers(0, 2)), max_size=40)


@given(STEPS)
def test_no_counter_ever_goes_back(steps: list[tuple[str, int]]) -> None:
    """Whatever the processes in three places count, say and die of; all that was said of the dead is in the sum."""
    totals = AggregatedMetrics()
    places = [ServerProcess() for _ in range(3)]
    numbers = [0, 1, 2]
    said = [0.0, 0.0, 0.0]
    of_dead = shown = 0.0
    for what, place in steps:
        if what == "count":
            places[place].requests.labels("/a").inc()
        elif what == "say":
            totals.said(numbers[place], places[place].families())
            said[place] = places[place].registry.get_sample_value("requests_total", {"route": "/a"}) or 0.0
        else:
            totals.ended(numbers[place])
            of_dead, said[place] = of_dead + said[place], 0.0
            places[place], numbers[place] = ServerProcess(), max(numbers) + 1
        found = page(totals).get("requests_total /a", 0.0)
        assert found == of_dead + sum(said)
        assert found >= shown
        shown = found


def test_the_page_is_one_that_prometheus_reads() -> None:
    """Each family is described once, before its samples; no sample comes twice."""
    totals = AggregatedMetrics()
    for number in range(3):
        process = ServerProcess()
        for route in ("/b", "/a"):
            process.requests.labels(route).inc()
            process.seconds.labels(route).observe(1)
        totals.said(number, process.families())
    registry = CollectorRegistry()
    registry.register(totals)
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
