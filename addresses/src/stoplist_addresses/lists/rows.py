"""Splits blocks of lines into rows, and gives their cells column by column.

Most files quote no cell, or every one, and have as many cells in every row as in the header: their blocks are split in
one call, without an object a row. Anything else is read by the csv module.

Source: docs/interface.md section D12, Files.
"""

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from stoplist_addresses.lists.blocks import MAX_ROW_BYTES, Block
from stoplist_addresses.lists.model import ListError


@dataclass(slots=True)
class Rows(ABC):
    """The rows of a block: the number of the line on which each begins, and the count of lines up to its end."""

    count: int
    lines: Sequence[int]
    ends: Sequence[int]

    @abstractmethod
    def column(self, index: int, begin: int, end: int) -> list[str]:
        """Return the cells of a column in the rows from `begin` to before `end`. A cell that is missing is empty."""

    @abstractmethod
    def cells(self, at: int) -> tuple[str, ...]:
        """Return all cells of one row."""


@dataclass(slots=True)
class _UniformRows(Rows):
    """Rows of `width` cells each, one after the other, each `stride` elements after the one before."""

    flat: list[str]
    width: int
    stride: int

    def column(self, index: int, begin: int, end: int) -> list[str]:
        if index >= self.width:
            return [""] * (end - begin)
        return self.flat[begin * self.stride + index : end * self.stride : self.stride]

    def cells(self, at: int) -> tuple[str, ...]:
        first = at * self.stride
        return tuple(self.flat[first : first + self.width])


@dataclass(slots=True)
class AnyRows(Rows):
    """Rows of any number of cells."""

    rows: list[list[str]]

    def column(self, index: int, begin: int, end: int) -> list[str]:
        rows = self.rows[begin:end]
        try:
            return [row[index] for row in rows]
        except IndexError:
            return [row[index] if index < len(row) else "" for row in rows]

    def cells(self, at: int) -> tuple[str, ...]:
        return tuple(self.rows[at])


def read_rows(block: Block, separator: str | None, width: int) -> tuple[Rows, int]:
    """Return the rows of a block, and the count of its lines that they take up.

    Lines remain if the block ends within a quoted cell. Without a separator, each line is one cell. `width` is the
    number of cells in most rows. Raise ListError at a row that is not RFC 4180 or longer than MAX_ROW_BYTES.
    """
    if separator is None or '"' not in block.lines:
        return _unquoted_rows(block, separator, width)
    if (quoted := _fully_quoted_rows(block, separator, width)) is not None:
        return quoted, block.line_count
    reader = csv.reader(io.StringIO(block.lines, newline="\n"), delimiter=separator, strict=True)
    try:
        rows = list(reader)
    except csv.Error:
        return _rows_one_by_one(block, separator)
    if reader.line_num == len(rows) and [] not in rows:
        numbers = range(block.first_line, block.first_line + len(rows))
        return AnyRows(len(rows), numbers, range(1, len(rows) + 1), rows), len(rows)
    return _rows_one_by_one(block, separator)


def _unquoted_rows(block: Block, separator: str | None, width: int) -> tuple[Rows, int]:
    text = block.lines
    count = block.line_count
    numbers = range(block.first_line, block.first_line + count)
    ends = range(1, count + 1)
    if "\n\n" not in text and not text.startswith("\n"):
        if separator is None or (width == 1 and separator not in text):
            return _UniformRows(count, numbers, ends, text.split("\n"), 1, 1), count
        flat = text.replace("\n", f"{separator}\n{separator}").split(separator)
        stride = width + 1
        # All rows have `width` cells if each line end is where it then is.
        if len(flat) == count * stride + 1 and flat[width::stride].count("\n") == count:
            return _UniformRows(count, numbers, ends, flat, width, stride), count
    return _rows_of_lines(block, separator), count


def _fully_quoted_rows(block: Block, separator: str, width: int) -> Rows | None:
    """Return the rows if all cells are quoted, and no cell has a quote or a line break in it; None otherwise."""
    text, count, stride = block.lines, block.line_count, width + 1
    if not (text.startswith('"') and text.endswith('"\n') and text.count('"') == 2 * width * count):
        return None
    between = f'"{separator}"'
    flat = text[1:-2].replace('"\n"', f"{between}\n{between}").split(between)
    # Then the quotes that were cut out are all there were, and the line ends are those between two rows.
    if len(flat) != count * stride - 1 or flat[width::stride].count("\n") != count - 1:
        return None
    numbers = range(block.first_line, block.first_line + count)
    return _UniformRows(count, numbers, range(1, count + 1), flat, width, stride)


def _rows_of_lines(block: Block, separator: str | None) -> Rows:
    lines = block.lines.split("\n")
    lines.pop()
    ends = [at for at, line in enumerate(lines, 1) if line]
    numbers = [block.first_line + end - 1 for end in ends]
    rows = [[line] if separator is None else line.split(separator) for line in lines if line]
    return AnyRows(len(rows), numbers, ends, rows)


def _rows_one_by_one(block: Block, separator: str) -> tuple[Rows, int]:
    """Return the same as `read_rows`, for blocks with empty lines, line breaks in cells, or errors."""
    reader = csv.reader(io.StringIO(block.lines, newline="\n"), delimiter=separator, strict=True)
    rows: list[list[str]] = []
    numbers: list[int] = []
    ends: list[int] = []
    begin = 0
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            _refuse_unless_unfinished(block, begin, error)
            break
        if row is None:
            break
        end = reader.line_num
        if end - begin > 1:
            _refuse_long_row(block, begin, end)
        if row:
            rows.append(row)
            numbers.append(block.first_line + begin)
            ends.append(end)
        begin = end
    return AnyRows(len(rows), numbers, ends, rows), begin


def _refuse_unless_unfinished(block: Block, begin: int, error: csv.Error) -> None:
    """Raise ListError unless the row only goes on in the next block."""
    line = block.first_line + begin
    text = str(error)
    if "unexpected end of data" not in text and "field limit" not in text:
        raise ListError(
            f"The row that begins on line {line} is not valid CSV: after the closing quote of a cell comes a separator "
            "or the end of the line, and a quote inside a quoted cell is doubled."
        )
    _refuse_long_row(block, begin, block.line_count)
    if block.is_last:
        raise ListError(f"The row that begins on line {line} has a quote that is never closed.")


def _refuse_long_row(block: Block, begin: int, end: int) -> None:
    if block.length_of(begin, end) > MAX_ROW_BYTES:
        raise ListError(
            f"The row that begins on line {block.first_line + begin} is longer than 64 KiB: perhaps a quote is never "
            "closed."
        )
