"""The metrics of several processes as one: what Prometheus is told must not go back when a process is replaced.

Source: docs/interface.md sections D1 (METRICS_LISTEN) and D10.
"""

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from stoplist.web.metrics import MetricFamily

_GAUGE = "gauge"
_Key = tuple[str, tuple[tuple[str, str], ...]]


class AggregatedMetrics(Collector):
    """The sum of what each process said last; of one that has ended, what it had counted stays."""

    def __init__(self) -> None:
        self._of_live: dict[int, list[MetricFamily]] = {}
        self._of_ended: list[MetricFamily] = []

    def said(self, process: int, families: list[MetricFamily]) -> None:
        """What this process, by any number of its own, counts now."""
        self._of_live[process] = families

    def ended(self, process: int) -> None:
        """This process is gone."""
        families = self._of_live.pop(process, [])
        self._of_ended = _sums([self._of_ended, [family for family in families if family.kind != _GAUGE]])

    def collect(self) -> Iterable[Metric]:
        for family in _sums([self._of_ended, *self._of_live.values()]):
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric


def _sums(parts: Iterable[list[MetricFamily]]) -> list[MetricFamily]:
    """Each family once, each of its samples once, with the sum of their values."""
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
            head.name, head.kind, head.text, [(name, dict(labels), value) for (name, labels), value in of.items()]
        )
        for head, of in ((head, sums[head.name]) for head in heads.values())
    ]
