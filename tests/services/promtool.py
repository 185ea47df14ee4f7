"""Prometheus' own tool, which evaluates alert rules over made-up or recorded series."""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.constants import ROOT
from tests.services.managed_program import find_program

RULES = ROOT / "deploy" / "prometheus" / "stoplist.rules.yml"
FIRING = 'group by (alertname) (ALERTS{alertstate="firing"})'
# What Prometheus adds to every series of a target.
_TARGET = {"job": "stoplist", "instance": "stoplist:9464"}
# As rarely as the shortest window allows: an evaluation takes milliseconds.
_EVALUATED_EVERY = "5m"
_WALL_TIMES = ("stoplist_certificate_end_seconds", "stoplist_backup_seconds")

Series = tuple[str, tuple[tuple[str, str], ...]]


class Phase(NamedTuple):
    """Minutes after which the metrics page had these values, a multiple of five; None: the page could not be read.

    `alarms` fire then, and no others; None: any may.
    """

    page: str | None
    minutes: int
    alarms: frozenset[str] | None = frozenset()


class Promtool:
    """The promtool of this machine. Raise Unavailable if there is none."""

    def __init__(self) -> None:
        self._program = find_program("promtool", package="prometheus")

    def check(self, *arguments: str | Path) -> str:
        """Run the tool, which must succeed, and return its output."""
        done = subprocess.run([self._program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def assert_alarms(self, timelines: Mapping[str, Sequence[Phase]], *, now_s: float) -> None:
        """Assert that at the end of each phase its alarms fire, and no other. `now_s` is when the pages were read."""
        tests = [_test(name, phases, now_s) for name, phases in timelines.items()]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "recorded.yml"
            file.write_text(
                json.dumps({"rule_files": [str(RULES)], "evaluation_interval": _EVALUATED_EVERY, "tests": tests})
            )
            self.check("test", "rules", file)


def metric_names(page: str) -> set[str]:
    """Return the names that a rule or a panel may use: of every family of a page, as its samples are called."""
    names: set[str] = set()
    for family in text_string_to_metric_families(page):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        if not family.name.endswith("_created"):
            names |= {family.name + suffix for suffix in suffixes}
    return names


def _test(name: str, phases: Sequence[Phase], now_s: float) -> dict[str, Any]:
    ends = [sum(phase.minutes for phase in phases[: number + 1]) for number in range(len(phases))]
    return {
        "name": name,
        "interval": "1m",
        "input_series": _input_series(phases, now_s),
        "promql_expr_test": [
            {
                "expr": FIRING,
                "eval_time": f"{end - 1}m",
                "exp_samples": [{"labels": f'{{alertname="{alarm}"}}', "value": 1} for alarm in sorted(phase.alarms)],
            }
            for phase, end in zip(phases, ends, strict=True)
            if phase.alarms is not None
        ],
    }


def _input_series(phases: Sequence[Phase], now_s: float) -> list[dict[str, str]]:
    """Return each series of the pages, a value a minute: gauges stand still in a phase, counters rise steadily."""
    counters: set[str] = set()
    pages: list[dict[Series, float]] = []
    for phase in phases:
        samples: dict[Series, float] = {("up", ()): float(phase.page is not None)}
        for family in text_string_to_metric_families(phase.page or ""):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    # promtool begins in 1970.
                    value = sample.value - now_s if sample.name in _WALL_TIMES else sample.value
                    samples[sample.name, tuple(sample.labels.items())] = value
                    counters |= {sample.name} if family.type in ("counter", "histogram") else set()
        pages.append(samples)
    return [
        {"series": _notation(series), "values": " ".join(_values(series, pages, phases, series[0] in counters))}
        for series in sorted({series for page in pages for series in page})
    ]


def _values(series: Series, pages: list[dict[Series, float]], phases: Sequence[Phase], is_counter: bool) -> list[str]:
    """Return the values in promtool's notation; Prometheus marks a series that has gone as stale."""
    values: list[str] = []
    last: float | None = None
    is_shown = False
    for page, phase in zip(pages, phases, strict=True):
        now = page.get(series)
        if now is None:
            values += ["stale" if is_shown else "_", *["_"] * (phase.minutes - 1)]
        elif is_counter:
            values += [repr(value) for value in _rising(_begin(last, now, is_first=not values), now, phase.minutes)]
        else:
            values += [repr(now)] * phase.minutes
        last, is_shown = last if now is None else now, now is not None
    return values


def _begin(last: float | None, now: float, *, is_first: bool) -> float:
    """Return where a counter stood at the beginning of a phase: at 0 if it is new, or the process is."""
    if is_first:
        return now
    return 0.0 if last is None or now < last else last


def _rising(begin: float, end: float, minutes: int) -> list[float]:
    return [begin + (end - begin) * minute / minutes for minute in range(1, minutes + 1)]


def _notation(series: Series) -> str:
    name, labels = series
    texts = [f"{label}={json.dumps(value)}" for label, value in (*_TARGET.items(), *labels)]
    return f"{name}{{{','.join(texts)}}}"
