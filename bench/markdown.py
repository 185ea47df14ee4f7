"""Renders the outcome as Markdown tables, and puts them into a document."""

from collections.abc import Iterable, Mapping, Sequence

from bench.verdict import PageTime, Verdict, Work, format_ratio, in_unit, target_label, verdict_label

_BEGIN, _END = "<!-- figures: written by `python -m bench --keep` -->\n", "<!-- end of figures -->\n"


def put_figures(document: str, figures: str) -> str:
    """Return the document with these figures between its two marks, in place of the earlier ones."""
    before, begin, rest = document.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError("the document lacks the marks that enclose the figures")
    return f"{before}{begin}{figures}{end}{after}"


def tables(
    verdicts: Iterable[Verdict], works: Mapping[str, Work], pages: Mapping[str, Sequence[PageTime]], *, note: str
) -> str:
    """Return the tables of verdicts, of the figures behind them and of pages by database, and then `note`."""
    lines = [
        "| what | median (least..greatest) | target | | medians behind it |",
        "|---|---|---|---|---|",
        *[_verdict(verdict) for verdict in verdicts],
        "",
        "| work | answers a second, median (least..greatest) | server µs | client | others | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|---|",
        *[_work(title, work) for title, work in works.items()],
        "",
        *_pages(pages),
        note,
    ]
    return "\n".join(lines) + "\n"


def _verdict(verdict: Verdict) -> str:
    figure, unit = verdict.figure, verdict.unit
    seen = f"**{in_unit(figure.median, unit)}** ({in_unit(figure.least, unit)}..{in_unit(figure.greatest, unit)})"
    return f"| {verdict.title} | {seen} | {target_label(verdict)} | {verdict_label(verdict)} | {verdict.detail} |"


def _work(title: str, work: Work) -> str:
    rate = f"{work.rate.median:.0f} ({work.rate.least:.0f}..{work.rate.greatest:.0f})"
    cores = f"{work.client_cpu_share.median:.0%} | {work.others_cpu_share.median:.0%}"
    times = f"{work.p50_ms.median:.2f} | {work.p99_ms.median:.2f}"
    return f"| {title} | {rate} | {work.server_cpu_us.median:.0f} | {cores} | {times} |"


def _pages(pages: Mapping[str, Sequence[PageTime]]) -> list[str]:
    """Return one line per page, with the same three figures for each database."""
    if not pages:
        return []
    heads = "".join(f" {where}: µs | larger : smaller | in look-ups |" for where in pages)
    by_title = {where: {one.title: one for one in times} for where, times in pages.items()}
    titles = dict.fromkeys(title for times in by_title.values() for title in times)
    return [
        f"| page |{heads}",
        f"|---|{'---|---|---|' * len(pages)}",
        *[f"| `{title}` |" + "".join(_page(times.get(title)) for times in by_title.values()) for title in titles],
        "",
    ]


def _page(time: PageTime | None) -> str:
    if time is None:
        return " | | |"
    slower = "" if time.slower is None else format_ratio(time.slower, 2)
    return f" {time.many_us.median:.0f} | {slower} | {format_ratio(time.look_ups, 1)} |"
