"""Draws the figures as SVG: one bar per verdict, its spread as a whisker, its target as a line."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from bench.verdict import Verdict

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP, _BAR = 960, 420, 110, 54, 34, 16
_COLOURS = {"reached": "#2e7d5b", "MISSED": "#b3452c", "": "#6b7a90"}
_INK, _PALE = "#1f2933", "#d9dee5"


def draw(verdicts: Sequence[Verdict], *, heading: str, note: str) -> str:
    """Return an SVG document. Each bar has its own scale, with its target in the middle."""
    height = _TOP + _STEP * len(verdicts) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(heading)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 28, heading, size=16, weight="bold"),
        *(part for number, verdict in enumerate(verdicts) for part in _bar(verdict, _TOP + number * _STEP)),
        _text(16, height - 14, note, size=11),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(verdict: Verdict, top: int) -> Iterator[str]:
    figure, middle = verdict.figure, top + _BAR / 2
    # The end of the scale leaves room for the spread and puts the target in the middle.
    end = max(figure.greatest * 1.05, 2 * verdict.target.limit if verdict.target else 0.0)

    def length(value: float) -> float:
        return round(value / end * (_WIDTH - _LEFT - _RIGHT), 1)

    yield _text(16, middle + 5, verdict.title)
    for value, fill, opacity in ((end, _PALE, 0.45), (figure.median, _COLOURS[verdict.label], 1)):
        at = f'x="{_LEFT}" y="{top}" width="{length(value)}" height="{_BAR}"'
        yield f'<rect {at} fill="{fill}" opacity="{opacity}"/>'
    yield _line(_LEFT + length(figure.least), middle, _LEFT + length(figure.greatest), middle)
    yield _text(_WIDTH - _RIGHT + 12, middle + 5, verdict.in_unit(figure.median), weight="bold")
    if verdict.target is not None:
        target_x = _LEFT + length(verdict.target.limit)
        yield _line(target_x, top - 5, target_x, top + _BAR + 5)
        yield _text(target_x + 5, top - 1, verdict.target_label, size=10)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_INK}" stroke-width="2"/>'


def _text(x: float, y: float, text: str, *, size: int = 13, weight: str = "normal") -> str:
    font = f'font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x}" y="{y}" {font} fill="{_INK}">{escape(text)}</text>'
