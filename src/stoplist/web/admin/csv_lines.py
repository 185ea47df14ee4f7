"""CSV rows (RFC 4180) in which no cell can be read as a formula by a spreadsheet.

Source: docs/interface.md section D11 (the audit).
"""

import re
from collections.abc import Iterable

from stoplist.lists.formulas import guarded

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"


def line(cells: Iterable[str], *, unguarded: re.Pattern[str] | None = None) -> str:
    """Return one record with its line break. Every cell is quoted, so it may hold commas, quotes and line breaks.

    Cells that match `unguarded` as a whole are written as they are.
    """
    return ",".join(f'"{_escape(cell, unguarded)}"' for cell in cells) + "\r\n"


def _escape(cell: str, unguarded: re.Pattern[str] | None) -> str:
    text = cell if unguarded is not None and unguarded.fullmatch(cell) else guarded(cell)
    return text.replace('"', '""')
