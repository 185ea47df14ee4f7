"""The outcome as Markdown tables, and the place in a document where the kept ones stand."""

from collections.abc import Iterable, Mapping, Sequence

from bench.verdict import PageTime, Verdict, Work, in_short, show, target_words, verdict_word

_BEGIN, _END = "<!-- figures: written by `python -m bench --keep` -->\n", "<!-- end of figures -->\n"


def put_figures(document: str, figures: str) -> str:
    """The document with these figures in place of those between its two marks."""
    before, begin, rest = document.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError("the document lacks the marks between which the figures stand")
    return f"{before}{begin}{figures}{end}{after}"


def tables(
    verdicts: Iterable[Verdict], works: Mapping[str, Work], pages: Mapping[str, Sequence[PageTime]], *, note: str
) -> str:
    """The verdicts, the figures behind them, those of each page by database, and the word on the machine."""
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
    seen = f"**{show(figure.median, unit)}** ({show(figure.least, unit)}..{show(figure.greatest, unit)})"
    return f"| {verdict.title} | {seen} | {target_words(verdict)} | {verdict_word(verdict)} | {verdict.detail} |"


def _work(title: str, work: Work) -> str:
    rate = f"{work.rate.median:.0f} ({work.rate.least:.0f}..{work.rate.greatest:.0f})"
    cores = f"{work.client_cpu_share.median:.0%} | {work.others_cpu_share.median:.0%}"
    times = f"{work.p50_ms.median:.2f} | {work.p99_ms.median:.2f}"
    return f"| {title} | {rate} | {work.server_cpu_us.median:.0f} | {cores} | {times} |"


def _pages(pages: Mapping[str, Sequence[PageTime]]) -> list[str]:
    """A line a page, with the same three figures for each database."""
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
    slower = "" if time.slower is None else in_short(time.slower, 2)
    return f" {time.many_us.median:.0f} | {slower} | {in_short(time.look_ups, 1)} |"
