"""The metrics of a supervisor: its own, and those of its workers together, in which no counter may fall.

Source: docs/interface.md sections D1 (METRICS_LISTEN) and D10.
"""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stoplist.web.metrics import COMMON_PREFIXES, MetricFamily

_GAUGE = "gauge"
_Key = tuple[str, tuple[tuple[str, str], ...]]


class AggregatedMetrics(Collector):
    """The sum of the latest metrics of each process; the counters of an ended process stay included."""

    def __init__(self) -> None:
        self._live: dict[int, list[MetricFamily]] = {}
        self._ended: list[MetricFamily] = []

    def update(self, process: int, families: list[MetricFamily]) -> None:
        """Replace the metrics of a process; `process` is any number that identifies it."""
        self._live[process] = families

    def end(self, process: int) -> None:
        """Keep the counters of a process that has ended, and drop its gauges."""
        families = self._live.pop(process, [])
        self._ended = _sums([self._ended, [family for family in families if family.kind != _GAUGE]])

    def collect(self) -> Iterable[Metric]:
        for family in _sums([self._ended, *self._live.values()]):
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric


class SupervisorMetrics(Collector):
    """The metrics of the supervisor itself: how many workers serve, how many should, and how many it replaced."""

    def __init__(self, serving: Callable[[], int], *, configured: int) -> None:
        self._serving, self._configured = serving, configured
        self.replaced = 0

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("stoplist_workers", "Worker processes that serve now.", value=self._serving())
        yield GaugeMetricFamily(
            "stoplist_workers_configured", "Worker processes that should serve.", value=self._configured
        )
        yield CounterMetricFamily(
            "stoplist_workers_replaced", "Worker processes that ended and were replaced.", value=self.replaced
        )


def _sums(parts: Iterable[list[MetricFamily]]) -> list[MetricFamily]:
    """Merge families of the same name, and add up their samples; of what all of them measure take the greatest."""
    heads: dict[str, MetricFamily] = {}
    sums: dict[str, dict[_Key, float]] = {}
    for family in (family for part in parts for family in part):
        heads.setdefault(family.name, family)
        samples = sums.setdefault(family.name, {})
        for name, labels, value in family.samples:
            key = name, tuple(labels.items())
            known = samples.get(key, 0.0)
            samples[key] = max(known, value) if name.startswith(COMMON_PREFIXES) else known + value
    return [
        MetricFamily(
            head.name,
            head.kind,
            head.text,
            [(name, dict(labels), value) for (name, labels), value in sums[head.name].items()],
        )
        for head in heads.values()
    ]
