"""Shows the outcome to people and programs: a table, a JSON file, a chart."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench import chart, markdown
from bench.machine import Machine
from bench.server import BenchError
from bench.suite import BARE, CLIENT_LEAD, Outcome
from bench.verdict import PageTime, Verdict, Work, format_ratio, in_unit, target_label, verdict_label

_QUIET = 0.2


def table(outcome: Outcome, machine: Machine) -> str:
    """Return the text that is printed at the end."""
    ciphers = ", ".join(sorted({work.cipher for work in outcome.works.values()}))
    lines = [note(machine), f"TLS: {ciphers}", "", *_work_lines(outcome.works), ""]
    for where, times in outcome.pages.items():
        lines += [*_page_lines(where, times), ""]
    lines += [*_verdict_lines(outcome.verdicts), *_warnings(outcome)]
    return "\n".join(lines)


def write(outcome: Outcome, machine: Machine, folder: Path) -> None:
    """Write `bench.json`, `bench.md` and `bench.svg` into `folder`, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    json = msgspec.json.format(msgspec.json.encode(_document(outcome, machine)))
    (folder / "bench.json").write_bytes(json + b"\n")
    (folder / "bench.md").write_text(_figures(outcome, machine))
    (folder / "bench.svg").write_text(_chart(outcome, machine))


def keep(outcome: Outcome, machine: Machine, docs: Path) -> None:
    """Put the figures into docs/benchmarks.md, and the chart beside it. Raises BenchError if a warning applies."""
    if warnings := _warnings(outcome):
        raise BenchError(f"not kept: {warnings[0]}")
    page = docs / "benchmarks.md"
    page.write_text(markdown.put_figures(page.read_text(), _figures(outcome, machine)))
    (docs / "benchmarks.svg").write_text(_chart(outcome, machine))


def note(machine: Machine) -> str:
    """Return the line that describes the machine."""
    return (
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}, "
        f"Python {machine.python}, uvicorn {machine.libraries['uvicorn']}; "
        f"a small durable write takes {machine.sync_us:.0f} µs"
    )


def has_passed(outcome: Outcome) -> bool:
    """Return whether every target is reached and every answer was right."""
    return all(verdict.is_met for verdict in outcome.verdicts) and not any(
        work.failures for work in outcome.works.values()
    )


def _figures(outcome: Outcome, machine: Machine) -> str:
    return markdown.tables(outcome.verdicts, outcome.works, outcome.pages, note=note(machine))


def _chart(outcome: Outcome, machine: Machine) -> str:
    heading = "Stoplist against bare applications on the same uvicorn, over TLS"
    return chart.draw(outcome.verdicts, heading=heading, note=note(machine))


def _document(outcome: Outcome, machine: Machine) -> dict[str, Any]:
    verdicts = [{**msgspec.to_builtins(verdict), "is_met": verdict.is_met} for verdict in outcome.verdicts]
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "verdicts": verdicts,
        "works": outcome.works,
        "pages": outcome.pages,
    }


def _work_lines(works: dict[str, Work]) -> list[str]:
    heads = f"{'work':58} {'per second (least..greatest)':>29} {'server µs':>10}"
    heads += f" {'client':>7} {'others':>7} {'p50 ms':>7} {'p99 ms':>7}"
    return [heads, *[_work_line(title, work) for title, work in works.items()]]


def _work_line(title: str, work: Work) -> str:
    rate = f"{work.rate.median:.0f} ({work.rate.least:.0f}..{work.rate.greatest:.0f})"
    cores = f"{work.client_cpu_share.median:7.0%} {work.others_cpu_share.median:7.0%}"
    times = f"{work.p50_ms.median:7.2f} {work.p99_ms.median:7.2f}"
    return f"{title:58} {rate:>29} {work.server_cpu_us.median:10.0f} {cores} {times}"


def _page_lines(where: str, times: Sequence[PageTime]) -> list[str]:
    heads = f"{f'pages on {where}':70} {'µs':>7} {'larger : smaller':>24} {'in look-ups':>22}"
    return [heads, *[_page_line(time) for time in times]]


def _page_line(time: PageTime) -> str:
    slower = "" if time.slower is None else format_ratio(time.slower, 2)
    return f"{time.title:70} {time.many_us.median:7.0f} {slower:>24} {format_ratio(time.look_ups, 1):>22}"


def _verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    return [_verdict_line(verdict) for verdict in verdicts]


def _verdict_line(verdict: Verdict) -> str:
    figure, unit = verdict.figure, verdict.unit
    seen = f"{in_unit(figure.median, unit)} ({in_unit(figure.least, unit)}..{in_unit(figure.greatest, unit)})"
    return f"{verdict_label(verdict):7} {verdict.title:60} {seen:32} {target_label(verdict):11} {verdict.detail}"


def _warnings(outcome: Outcome) -> list[str]:
    lines = [
        f"WRONG ANSWERS: {title}: {work.failures}, first: {work.first_failure}"
        for title, work in outcome.works.items()
        if work.failures
    ]
    if any(verdict.title == CLIENT_LEAD and not verdict.is_met for verdict in outcome.verdicts):
        lines.append("THE CLIENT IS TOO SLOW: the figures may show its limit, not the server's.")
    # Measured with the bare applications only: they need no database, whose processes would count as others.
    bare = [work.others_cpu_share.median for title, work in outcome.works.items() if title.endswith(BARE)]
    if bare and (others := median(bare)) > _QUIET:
        lines.append(f"NOT A QUIET MACHINE: other programs used {others:.0%} of a core; do not keep these figures.")
    return lines
