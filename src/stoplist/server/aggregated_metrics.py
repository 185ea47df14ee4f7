"""The sum of the metrics of several processes; no counter may fall when a process is replaced.

Source: docs/interface.md sections D1 (METRICS_LISTEN) and D10.
"""

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from stoplist.web.metrics import MetricFamily

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


def _sums(parts: Iterable[list[MetricFamily]]) -> list[MetricFamily]:
    """Merge families of the same name, and add up samples of the same name and labels."""
    heads: dict[str, MetricFamily] = {}
    sums: dict[str, dict[_Key, float]] = {}
    for family in (family for part in parts for family in part):
        heads.setdefault(family.name, family)
        samples = sums.setdefault(family.name, {})
        for name, labels, value in family.samples:
            key = name, tuple(labels.items())
            samples[key] = samples.get(key, 0.0) + value
    return [
        MetricFamily(
            head.name,
            head.kind,
            head.text,
            [(name, dict(labels), value) for (name, labels), value in sums[head.name].items()],
        )
        for head in heads.values()
    ]
