"""A CSV file with a header row: which columns count, and its rows, each with the bytes that it was.

Texts here never repeat a cell: in a file without a header the first row holds somebody's address.
"""

import csv
import difflib
import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, TypeAlias

import click

from stoplist_client.cli.address_lines import CR_ALONE, may_be_an_address, slices_of_lines, texts_of
from stoplist_client.cli.exit_status import Failed

_WORDS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
_MOST_TAKEN = 10_000
# As `_plain` makes them.
_NAMES = {
    "email": ("address", "email", "mail", "emailaddress"),
    "sms": ("address", "phone", "mobile", "sms", "number", "phonenumber", "mobilenumber"),
    "phone": ("address", "phone", "mobile", "number", "telephone", "phonenumber", "mobilenumber"),
}
# From how alike a name is refused. A moment that is not read would count as now, and win over later acts; so it takes
# less there than elsewhere, where `resource` is no misspelt `source`.
_TOO_ALIKE = {"occurred_at": 0.8, "reason": 0.88, "source": 0.88}


delimiter_option = click.option(
    "--delimiter",
    type=click.Choice((*_WORDS, ",", ";", "|")),
    callback=lambda _ctx, _param, value: _WORDS.get(value, value),
    metavar="NAME",
    help="What separates the columns: comma, semicolon, tab or bar; if it is not said, the header row shows it.",
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
        found = [at for at, name in enumerate(self.names) if _plain(name) in _NAMES[channel]]
        if len(found) == 1:
            return found[0]
        what = "Several columns may hold the addresses" if found else "No column has a usual name for addresses"
        raise Failed(f"{what}: say which with --column. {self._told_names()}")

    def column(self, name: str) -> int | None:
        """The number of the column of that name, from 0, if there is one. Case, blanks, - and _ make no difference.

        Failed where another is called almost so: nobody would see that it is not read.
        """
        found = [at for at, other in enumerate(self.names) if _plain(other) == _plain(name)]
        if len(found) > 1:
            raise Failed(f"Several columns are called {name}: leave one.")
        if not found:
            self._refuse_almost(name)
        return found[0] if found else None

    def _refuse_almost(self, name: str) -> None:
        by_plain = {_plain(other): other for other in self.names}
        for almost in difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=_TOO_ALIKE[name]):
            other = by_plain[almost]
            which = "A column" if may_be_an_address(other) else f"The column {_printable(other)!r}"
            raise Failed(f"{which} has almost the name {name}: call it {name}, or something quite different.")

    def _named(self, named: str) -> int:
        found = [at for at, name in enumerate(self.names) if name == named]
        found = found or [at for at, name in enumerate(self.names) if name.lower() == named.lower()]
        if len(found) == 1:
            return found[0]
        if not found and named.isascii() and named.isdigit() and 1 <= int(named) <= len(self.names):
            return int(named) - 1
        raise Failed(f"{'Several columns have' if found else 'No column has'} that name. {self._told_names()}")

    def _told_names(self) -> str:
        if any(map(may_be_an_address, self.names)):
            return "The first row looks like an address: a header row is needed, which names the columns."
        return f"The columns are: {_printable(', '.join(self.names))}."

    def _read(self, first: list[bytes]) -> Iterator[Row]:
        taken: list[bytes] = []
        # strict, since a quote that is never closed would otherwise swallow the rows after it.
        reader = csv.reader(chain.from_iterable(self._texts(first, taken)), delimiter=self._delimiter, strict=True)
        begin = before = 0  # of the next row in `taken`; and how many lines were there before those
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if "new-line character" in str(error):
                    raise Failed(CR_ALONE) from None
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


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _sniffed(header: str) -> str:
    """The delimiter that makes the most columns of the header; a comma where there is one column."""

    def columns(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=delimiter), []))
        except csv.Error:
            return 0  # whoever reads the rows says what is wrong

    return max(_WORDS.values(), key=columns)
