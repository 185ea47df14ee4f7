"""CSV rows (RFC 4180) in which no cell can be read as a formula by a spreadsheet.

Cells hold what people and partners typed. A spreadsheet evaluates a cell that begins with = + - @, which may fetch,
send or start something. Such a cell gets a leading ', so that spreadsheets treat it as text.
Source: docs/interface.md section D11 (the audit), and OWASP, "CSV Injection".
"""

import re
from collections.abc import Iterable

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"

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


def line(cells: Iterable[str]) -> str:
    """Return one record with its line break. Every cell is quoted, so it may hold commas, quotes and line breaks."""
    return ",".join(f'"{_escape(cell)}"' for cell in cells) + "\r\n"


def _escape(cell: str) -> str:
    text = _FORMULA.sub("'", cell)
    if text.startswith(_LEADING_CONTROL):
        text = "'" + text
    return text.replace('"', '""')
