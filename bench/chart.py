"""Draws the figures as SVG: one bar per verdict, its spread as a whisker, its target as a line."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.verdict import Verdict, in_unit, target_label

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP, _BAR = 960, 420, 110, 54, 34, 16
_MET, _MISSED, _PLAIN, _INK, _PALE = "#2e7d5b", "#b3452c", "#6b7a90", "#1f2933", "#d9dee5"


def draw(verdicts: Sequence[Verdict], *, heading: str, note: str) -> str:
    """Return an SVG document. Each bar has its own scale, with its target in the middle."""
    height = _TOP + _STEP * len(verdicts) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(heading)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 28, heading, size=16, weight="bold"),
    ]
    for number, verdict in enumerate(verdicts):
        lines += _bar(verdict, _TOP + number * _STEP)
    lines += [_text(16, height - 14, note, size=11), "</svg>"]
    return "\n".join(lines) + "\n"


def _bar(verdict: Verdict, top: int) -> list[str]:
    figure = verdict.figure
    # The end of the scale leaves room for the spread and puts the target in the middle.
    end = max(figure.greatest * 1.05, 2 * verdict.target.limit if verdict.target else 0.0)
    middle = top + _BAR / 2
    parts = [
        _text(16, middle + 5, verdict.title),
        _rect(_LEFT, top, _length(end, end), _BAR, _PALE, opacity=0.45),
        _rect(_LEFT, top, _length(figure.median, end), _BAR, _colour(verdict)),
        _line(_LEFT + _length(figure.least, end), middle, _LEFT + _length(figure.greatest, end), middle, 2),
        _text(_WIDTH - _RIGHT + 12, middle + 5, in_unit(figure.median, verdict.unit), weight="bold"),
    ]
    if verdict.target is not None:
        at = _LEFT + _length(verdict.target.limit, end)
        parts.append(_line(at, top - 5, at, top + _BAR + 5, 2))
        parts.append(_text(at + 5, top - 1, target_label(verdict), size=10))
    return parts


def _colour(verdict: Verdict) -> str:
    if verdict.target is None:
        return _PLAIN
    return _MET if verdict.is_met else _MISSED


def _length(figure: float, end: float) -> float:
    return round(figure / end * (_WIDTH - _LEFT - _RIGHT), 1)


def _rect(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" opacity="{opacity}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, width: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_INK}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, *, size: int = 13, weight: str = "normal") -> str:
    font = f'font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x}" y="{y}" {font} fill="{_INK}">{escape(text)}</text>'
