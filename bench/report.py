"""Shows the outcome to people and programs: tables, a JSON file, a chart."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench import chart
from bench.server import BenchError
from bench.tokens import BARE, CLIENT_LEAD
from bench.verdict import Outcome, PageTime, Series, Verdict, Work

_QUIET = 0.2
_HEADING = "Stoplist against bare applications on the same uvicorn, over TLS"
_BEGIN, _END = "<!-- figures: written by `python -m bench --keep` -->\n", "<!-- end of figures -->\n"

Table = list[list[str]]
"""The cells of each line; the first line has the heads."""


def text(outcome: Outcome) -> str:
    """Return the text that is printed at the end."""
    ciphers = ", ".join(sorted({work.cipher for work in outcome.works.values()}))
    tls = [f"TLS: {ciphers}"] if ciphers else []
    return "\n".join([_note(outcome), *tls, *map(_aligned, _tables(outcome)), *_warnings(outcome)])


def write(outcome: Outcome, folder: Path) -> None:
    """Write `bench.json`, `bench.md` and `bench.svg` into `folder`, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    built = msgspec.to_builtins(outcome, enc_hook=_spread)
    verdicts = [shown | {"is_met": one.is_met} for shown, one in zip(built["verdicts"], outcome.verdicts, strict=True)]
    document = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **built, "verdicts": verdicts}
    (folder / "bench.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    (folder / "bench.md").write_text(markdown(outcome))
    (folder / "bench.svg").write_text(_chart(outcome))


def keep(outcome: Outcome, docs: Path) -> None:
    """Put the figures into docs/benchmarks.md, and the chart beside it. Raises BenchError if a warning applies."""
    if warnings := _warnings(outcome):
        raise BenchError(f"not kept: {warnings[0]}")
    page = docs / "benchmarks.md"
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise BenchError(f"{page} lacks the marks that enclose the figures")
    page.write_text(f"{before}{begin}{markdown(outcome)}{end}{after}")
    (docs / "benchmarks.svg").write_text(_chart(outcome))


def has_passed(outcome: Outcome) -> bool:
    """Return whether every target is reached and every answer was right."""
    return all(one.is_met for one in outcome.verdicts) and not any(work.failures for work in outcome.works.values())


def markdown(outcome: Outcome) -> str:
    """Return the tables of verdicts, of the figures behind them and of pages by database, and a line on the machine."""
    lines: list[str] = []
    for heads, *rows in _tables(outcome):
        lines += [_line(heads), "|---" * len(heads) + "|", *map(_line, rows), ""]
    return "\n".join([*lines, _note(outcome)]) + "\n"


def _tables(outcome: Outcome) -> Iterator[Table]:
    heads = ["what", "median (least..greatest)", "target", "", "medians behind it"]
    yield [heads, *map(_verdict, outcome.verdicts)]
    heads = ["work", "answers a second, median (least..greatest)", "server µs", "client", "others", "p50 ms", "p99 ms"]
    if outcome.works:
        yield [heads, *(_work(title, work) for title, work in outcome.works.items())]
    if outcome.pages:
        yield _pages(outcome.pages)


def _verdict(one: Verdict) -> list[str]:
    return [one.title, _range(one.figure, one.in_unit, "**"), one.target_label, one.label, one.detail]


def _work(title: str, work: Work) -> list[str]:
    shares = [f"{share:.0%}" for share in (work.client_cpu_share, work.others_cpu_share)]
    times = [f"{time:.2f}" for time in (work.p50_ms, work.p99_ms)]
    return [title, _range(work.rate, "{:.0f}".format), f"{work.server_cpu_us:.0f}", *shares, *times]


def _pages(pages: Mapping[str, Sequence[PageTime]]) -> Table:
    """Return one line per page, with the same three figures for each database."""
    by_title = [{one.title: one for one in times} for times in pages.values()]
    heads = ["page", *(head for where in pages for head in (f"{where}: µs", "larger : smaller", "in look-ups"))]
    titles = dict.fromkeys(title for times in by_title for title in times)
    return [
        heads,
        *([f"`{title}`", *(cell for times in by_title for cell in _page(times.get(title)))] for title in titles),
    ]


def _page(time: PageTime | None) -> list[str]:
    if time is None:
        return ["", "", ""]
    slower = "" if time.slower is None else _range(time.slower, "{:.2f}".format)
    return [f"{time.many_us:.0f}", slower, _range(time.look_ups, "{:.1f}".format)]


def _range(figure: Series, shown: Callable[[float], str], bold: str = "") -> str:
    return f"{bold}{shown(figure.median)}{bold} ({shown(figure.least)}..{shown(figure.greatest)})"


def _spread(series: Any) -> dict[str, float]:
    """Return a Series as it stands in the JSON file."""
    return {"median": series.median, "least": series.least, "greatest": series.greatest}


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _aligned(table: Table) -> str:
    rows = [[cell.replace("**", "") for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(["", *lines])


def _note(outcome: Outcome) -> str:
    machine = outcome.machine
    return (
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}, "
        f"Python {machine.python}, uvicorn {machine.libraries['uvicorn']}; "
        f"a small durable write takes {machine.sync_us:.0f} µs"
    )


def _chart(outcome: Outcome) -> str:
    return chart.draw(outcome.verdicts, heading=_HEADING, note=_note(outcome))


def _warnings(outcome: Outcome) -> list[str]:
    lines = [
        f"WRONG ANSWERS: {title}: {work.failures}, first: {work.first_failure}"
        for title, work in outcome.works.items()
        if work.failures
    ]
    if any(one.title == CLIENT_LEAD and not one.is_met for one in outcome.verdicts):
        lines.append("THE CLIENT IS TOO SLOW: the figures may show its limit, not the server's.")
    # Measured with the bare applications only: they need no database, whose processes would count as others.
    bare = [work.others_cpu_share.median for title, work in outcome.works.items() if title.endswith(BARE)]
    if bare and (others := median(bare)) > _QUIET:
        lines.append(f"NOT A QUIET MACHINE: other programs used {others:.0%} of a core; do not keep these figures.")
    return lines
