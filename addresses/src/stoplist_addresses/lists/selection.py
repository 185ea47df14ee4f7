"""A selection of the rows of a list, which interpretation narrows column by column."""

from collections.abc import Sequence
from itertools import compress

from stoplist_addresses.lists.model import BadRow
from stoplist_addresses.lists.rows import Rows


class Selection:
    """Some of the rows from `begin` to before `end`."""

    def __init__(self, rows: Rows, begin: int, end: int) -> None:
        self.rows, self.begin, self.end = rows, begin, end
        self._at: list[int] | None = None

    def keep(self, is_kept: Sequence[bool]) -> None:
        """Keep those of the selected rows for which `is_kept` is true."""
        if not all(is_kept):
            at = range(self.begin, self.end) if self._at is None else self._at
            self._at = list(compress(at, is_kept))

    def split(self, is_other: Sequence[bool]) -> "Selection":
        """Keep the selected rows for which `is_other` is false; return a selection of the others."""
        other = Selection(self.rows, self.begin, self.end)
        other._at = self._at
        other.keep(is_other)
        self.keep([not each for each in is_other])
        return other

    def column(self, index: int) -> list[str]:
        """Return the cells of a column in the selected rows."""
        cells = self.rows.column(index, self.begin, self.end)
        if self._at is None:
            return cells
        begin = self.begin
        return [cells[at - begin] for at in self._at]

    def __len__(self) -> int:
        return self.end - self.begin if self._at is None else len(self._at)

    def lines(self) -> Sequence[int]:
        """Return the line numbers of the selected rows."""
        if self._at is None:
            return self.rows.lines[self.begin : self.end]
        return [self.rows.lines[at] for at in self._at]

    def cells(self, at: int) -> tuple[str, ...]:
        """Return all cells of a selected row."""
        return self.rows.cells(self.begin + at if self._at is None else self._at[at])

    def bad_row(self, at: int, error: str) -> BadRow:
        """Return a selected row as a bad one."""
        row = self.begin + at if self._at is None else self._at[at]
        return BadRow(self.rows.lines[row], error, self.rows.cells(row))
