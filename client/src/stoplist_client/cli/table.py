"""A CSV file with a header row: which columns count, and its rows, each with the bytes that it was.

Texts here never repeat a cell: in a file without a header the first row holds somebody's address.
"""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, TypeAlias

import click

from stoplist_client.cli.reading import slices_of_lines, texts_of
from stoplist_client.cli.trouble import Failed

_MAY_BE_AN_ADDRESS = re.compile(r"@|\d{4}")
_WORDS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
_MOST_TAKEN = 10_000
_NAMES = {
    "email": ("address", "email", "e-mail", "mail", "email address", "e-mail address", "email_address"),
    "sms": ("address", "phone", "mobile", "sms", "number", "phone number", "phone_number", "mobile_number"),
    "phone": ("address", "phone", "mobile", "number", "telephone", "phone number", "phone_number", "mobile_number"),
}


delimiter_option = click.option(
    "--delimiter",
    type=click.Choice((*_WORDS, ",", ";", "|")),
    callback=lambda _ctx, _param, value: _WORDS.get(value, value),
    help="What separates the columns; if it is not said, the header row shows it.",
)


Row: TypeAlias = tuple[int, list[str], bytes]
"""The number of the line that a row begins on, from 1; its cells; and its bytes with their line ending."""


class Table:
    """The rows after the header, read lazily. Bytes that are not UTF-8 become what no address holds."""

    def __init__(self, stream: BinaryIO, *, delimiter: str | None) -> None:
        self._slices = slices_of_lines(stream)
        first = next(self._slices, None)
        if first is None:
            raise Failed("The file is empty: it needs a header row, which names the columns.")
        self._delimiter = delimiter or _sniffed(texts_of(first[:1])[0])
        self._rows = self._read(first)
        _line, cells, self.header = next(self._rows)
        self.names = [cell.strip() for cell in cells]

    def __iter__(self) -> Iterator[Row]:
        return (row for row in self._rows if row[1])

    def address_column(self, channel: str, named: str | None) -> int:
        """The number of the column with the addresses, from 0: the named one, or the one of a usual name."""
        if named is not None:
            return self._named(named)
        found = [at for at, name in enumerate(self.names) if name.lower() in _NAMES[channel]]
        if len(found) == 1:
            return found[0]
        raise Failed(
            f"{'Several columns' if found else 'No column'} may hold the addresses: say which with --column. "
            f"{self._told_names()}"
        )

    def column(self, name: str) -> int | None:
        """The number of the column of that name, from 0, if there is one."""
        found = [at for at, other in enumerate(self.names) if other.lower() == name]
        if len(found) > 1:
            raise Failed(f"Several columns are called {name}: leave one.")
        return found[0] if found else None

    def _named(self, named: str) -> int:
        found = [at for at, name in enumerate(self.names) if name == named]
        found = found or [at for at, name in enumerate(self.names) if name.lower() == named.lower()]
        if len(found) == 1:
            return found[0]
        if not found and named.isascii() and named.isdigit() and 1 <= int(named) <= len(self.names):
            return int(named) - 1
        raise Failed(f"{'Several columns have' if found else 'No column has'} that name. {self._told_names()}")

    def _told_names(self) -> str:
        if any(map(_MAY_BE_AN_ADDRESS.search, self.names)):
            return "The first row looks like an address: a header row is needed, which names the columns."
        return f"The columns are: {', '.join(self.names).encode(errors='replace').decode()}."

    def _read(self, first: list[bytes]) -> Iterator[Row]:
        taken: list[bytes] = []
        # strict, since a quote that is never closed would otherwise swallow the rows after it.
        reader = csv.reader(chain.from_iterable(self._texts(first, taken)), delimiter=self._delimiter, strict=True)
        begin = before = 0  # of the next row in `taken`; and how many lines were there before those
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                where = f"What begins on line {before + begin + 1} is not CSV"
                raise Failed(f"{where} ({error}): mend it, or name another --delimiter.") from None
            if cells is None:
                return
            end = reader.line_num - before
            yield before + begin + 1, cells, taken[begin] if end == begin + 1 else b"".join(taken[begin:end])
            begin = end
            if begin > _MOST_TAKEN:
                del taken[:begin]
                before, begin = before + begin, 0

    def _texts(self, first: list[bytes], taken: list[bytes]) -> Iterator[list[str]]:
        for lines in chain((first,), self._slices):
            taken += lines
            yield [f"{text}\n" for text in texts_of(lines)]


def _sniffed(header: str) -> str:
    """The delimiter that makes the most columns of the header; a comma where there is one column."""

    def columns(delimiter: str) -> int:
        return len(next(csv.reader([header], delimiter=delimiter), []))

    return max(_WORDS.values(), key=columns)
