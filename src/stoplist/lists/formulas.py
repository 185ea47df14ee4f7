"""Guards cells of CSV files that a spreadsheet would read as formulas.

Cells hold what people and partners typed. A spreadsheet evaluates a cell that begins with = + - @, which may fetch,
send or start something. Source: OWASP, "CSV Injection".
"""

import re

# Some programs strip white space or quotes before the sign, and East Asian ones accept full-width signs. A ; or tab
# inside a cell starts another cell for programs that use it as the separator.
_FORMULA = re.compile(
    r"""
    (?:\A|(?<=[;\t\r\n]))           # where a cell begins, or may begin for some program
    (?= [\s"'\ufeff]* [=+\-@\uff1d\uff0b\uff0d\uff20] )
    """,
    re.VERBOSE,
)
_LEADING_CONTROL = ("\t", "\r", "\n")


def guarded(cell: str) -> str:
    """Return the cell with a ' before everything that a spreadsheet might evaluate, so that it is treated as text."""
    text = _FORMULA.sub("'", cell)
    return "'" + text if text.startswith(_LEADING_CONTROL) else text
