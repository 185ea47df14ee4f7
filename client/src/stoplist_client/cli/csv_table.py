"""A CSV file with a header row: finds its columns, and reads its rows with their original bytes.

Messages never repeat a cell: in a file without a header, the first row contains somebody's address.
"""

import csv
import difflib
import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, TypeAlias

import click

from stoplist_client.cli.address_lines import CR_ALONE, decode_lines, may_be_an_address, slices_of_lines
from stoplist_client.cli.exit_status import Failed

_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
_MAX_KEPT_LINES = 10_000
# In the form of `_normalized`.
_ADDRESS_NAMES = {
    "email": ("address", "email", "mail", "emailaddress"),
    "sms": ("address", "phone", "mobile", "sms", "number", "phonenumber", "mobilenumber"),
    "phone": ("address", "phone", "mobile", "number", "telephone", "phonenumber", "mobilenumber"),
}
# The similarity from which a column name is refused as a misspelling. It is lower for occurred_at: a time that is not
# read would count as now and override later acts. It is higher for the others, so that `resource` is not `source`.
_SIMILARITY_CUTOFF = {"occurred_at": 0.8, "reason": 0.88, "source": 0.88}


delimiter_option = click.option(
    "--delimiter",
    type=click.Choice((*_DELIMITERS, ",", ";", "|")),
    callback=lambda _ctx, _param, value: _DELIMITERS.get(value, value),
    metavar="NAME",
    help="The column separator: comma, semicolon, tab or bar (default: detected from the header row).",
)


Row: TypeAlias = tuple[int, list[str], bytes]
"""The line number (from 1) on which the row begins, its cells, and its bytes including the line ending."""


class Table:
    """The rows after the header, read lazily. Bytes that are not UTF-8 become lone surrogates."""

    def __init__(self, stream: BinaryIO, *, delimiter: str | None) -> None:
        self._slices = slices_of_lines(stream)
        first = next(self._slices, None)
        if first is None:
            raise Failed("The file is empty: it needs a header row with the column names.")
        self.delimiter = delimiter or _detect_delimiter(decode_lines(first[:1])[0])
        self._rows = self._read(first)
        _line, cells, self.header = next(self._rows)
        self.names = [cell.strip() for cell in cells]

    def __iter__(self) -> Iterator[Row]:
        return (row for row in self._rows if row[1])

    def address_column(self, channel: str, named: str | None) -> int:
        """Return the index of the address column: the named one, or the only one with a usual name."""
        if named is not None:
            return self._column_named(named)
        matches = [index for index, name in enumerate(self.names) if _normalized(name) in _ADDRESS_NAMES[channel]]
        if len(matches) == 1:
            return matches[0]
        problem = "Several columns may contain the addresses" if matches else "No column has a usual name for addresses"
        raise Failed(f"{problem}: name the column with --column. {self._columns_text()}")

    def column(self, name: str) -> int | None:
        """Return the index of the column with this name, or None. Case, blanks, - and _ make no difference.

        Raises Failed if a column has a similar name, since nobody would notice that it is not read.
        """
        matches = [index for index, other in enumerate(self.names) if _normalized(other) == _normalized(name)]
        if len(matches) > 1:
            raise Failed(f"Several columns are called {name}: keep only one of them.")
        if not matches:
            self._refuse_similar(name)
        return matches[0] if matches else None

    def _refuse_similar(self, name: str) -> None:
        by_normalized = {_normalized(other): other for other in self.names}
        for similar in difflib.get_close_matches(
            _normalized(name), by_normalized, n=1, cutoff=_SIMILARITY_CUTOFF[name]
        ):
            other = by_normalized[similar]
            which = "A column" if may_be_an_address(other) else f"The column {_printable(other)!r}"
            raise Failed(f"{which} looks like a misspelt {name}: rename it to {name}, or to something quite different.")

    def _column_named(self, named: str) -> int:
        matches = [index for index, name in enumerate(self.names) if name == named]
        matches = matches or [index for index, name in enumerate(self.names) if name.lower() == named.lower()]
        if len(matches) == 1:
            return matches[0]
        if not matches and named.isascii() and named.isdigit() and 1 <= int(named) <= len(self.names):
            return int(named) - 1
        raise Failed(f"{'Several columns have' if matches else 'No column has'} that name. {self._columns_text()}")

    def _columns_text(self) -> str:
        if any(map(may_be_an_address, self.names)):
            return "The first row looks like an address: the file needs a header row with the column names."
        return f"The columns are: {_printable(', '.join(self.names))}."

    def _read(self, first: list[bytes]) -> Iterator[Row]:
        kept: list[bytes] = []
        # Strict, since a quote that is never closed would otherwise include the rows after it.
        reader = csv.reader(chain.from_iterable(self._texts(first, kept)), delimiter=self.delimiter, strict=True)
        begin = before = 0  # index of the next row in `kept`; number of lines dropped before those kept
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if "new-line character" in str(error):
                    raise Failed(CR_ALONE) from None
                where = f"The row that begins on line {before + begin + 1} is not valid CSV"
                raise Failed(f"{where} ({error}): correct it, or use another --delimiter.") from None
            if cells is None:
                return
            end = reader.line_num - before
            yield before + begin + 1, cells, kept[begin] if end == begin + 1 else b"".join(kept[begin:end])
            begin = end
            if begin > _MAX_KEPT_LINES:
                del kept[:begin]
                before, begin = before + begin, 0

    def _texts(self, first: list[bytes], kept: list[bytes]) -> Iterator[list[str]]:
        for lines in chain((first,), self._slices):
            kept += lines
            yield [f"{text}\n" for text in decode_lines(lines)]


def is_usual_address_name(text: str, channel: str) -> bool:
    """Return whether a line is a usual name of the column with the addresses."""
    return _normalized(text) in _ADDRESS_NAMES[channel]


def _normalized(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _detect_delimiter(header: str) -> str:
    """Return the delimiter that splits the header into the most columns; a comma if there is only one column."""

    def columns(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=delimiter), []))
        except csv.Error:
            return 0  # reading the rows reports the problem

    return max(_DELIMITERS.values(), key=columns)
