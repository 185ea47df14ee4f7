"""Guards cells of CSV files that a spreadsheet would read as formulas.

Cells hold what people and partners typed. A spreadsheet evaluates a cell that begins with = + - @, which may fetch,
send or start something. Source: OWASP, "CSV Injection".
"""

import re

# Some programs strip white space or quotes before the sign, and East Asian ones accept full-width signs. A run of these
# characters is searched from its beginning alone: from every tab in it, a cell of 64 KiB would take minutes.
_SIGN = re.compile(
    r"""
    (?<! [\s"'\ufeff] )
    ( [\s"'\ufeff]* )
    ( [=+\-@\uff1d\uff0b\uff0d\uff20] )
    """,
    re.VERBOSE,
)
# A ; or one of these controls starts another cell for programs that use it as the separator.
_CONTROL = re.compile(r"[\t\r\n]")
_LEADING_CONTROL = ("\t", "\r", "\n")
_BEFORE_CELL = frozenset(";\t\r\n")


def guarded(cell: str) -> str:
    """Return the cell with a ' before everything that a spreadsheet might evaluate, so that it is treated as text."""
    text = _SIGN.sub(_guard, cell)
    return "'" + text if text.startswith(_LEADING_CONTROL) else text


def _guard(sign: re.Match[str]) -> str:
    """Return a sign with what stands before it, with a ' wherever a cell begins."""
    begins_cell = sign.start() == 0 or sign.string[sign.start() - 1] in _BEFORE_CELL
    return ("'" if begins_cell else "") + _CONTROL.sub(r"\g<0>'", sign[1]) + sign[2]
