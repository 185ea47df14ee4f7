"""Rows as CSV (RFC 4180), with no cell that a spreadsheet would take for a formula.

Names in a file are what people and partners typed. A cell that begins with = + - @ is computed by the program that
opens the file, and may fetch, send or start something: it gets a ' in front, by which spreadsheets take it for text.
Source: docs/interface.md section D11 (the audit), and OWASP, "CSV Injection".
"""

import re
from collections.abc import Iterable

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"

# With white space or quotes before it, which some programs take off; also in full width, as East Asian ones read it. In
# the middle of a cell a ; or tab begins another one for a program that divides by these.
_FORMULA = re.compile(
    r"""
    (?:\A|(?<=[;\t\r\n]))           # where a cell begins, or where one might be taken to
    (?= [\s"'\ufeff]* [=+\-@\uff1d\uff0b\uff0d\uff20] )
    """,
    re.VERBOSE,
)
_LEADING_CONTROL = ("\t", "\r", "\n")


def line(cells: Iterable[str]) -> str:
    """One record with its line break. Every cell is quoted, so that none ends at a comma, quote or line break in it."""
    return ",".join(f'"{_harmless(cell)}"' for cell in cells) + "\r\n"


def _harmless(cell: str) -> str:
    text = _FORMULA.sub("'", cell)
    if text.startswith(_LEADING_CONTROL):
        text = "'" + text
    return text.replace('"', '""')
