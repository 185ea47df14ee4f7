"""Reads lines of addresses as they arrive, in bounded memory."""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Generic, TypeVar

from stoplist_client.cli.exit_status import Failed, print_notice

T = TypeVar("T")

_MAX_LINE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 18
_BOM = b"\xef\xbb\xbf"
_MAY_BE_AN_ADDRESS = re.compile(r"@|\d{4}")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

CR_ALONE = "The lines end with a carriage return only: save the file with LF or CR LF line endings."
NOT_UTF_8 = "This is not UTF-8: save the file as UTF-8."


def standard_input(what: str) -> BinaryIO:
    """Return the byte stream of stdin. On a terminal, print what to type. Raises Failed if stdin is closed."""
    if sys.stdin is None:
        raise Failed("Standard input is closed: open it, or give addresses as arguments.")
    stream = sys.stdin.buffer
    if stream.isatty():
        print_notice(f"Type {what}, then Ctrl+D.")
    return stream


def slices_of_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield all lines in slices as they arrive: empty ones too, with their `\\n`, and with a byte order mark if any."""
    read = getattr(stream, "read1", stream.read)
    rest, lines_before = b"", 0
    while chunk := read(_CHUNK_BYTES):
        if not lines_before:
            refuse_utf_16(rest + chunk)
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _MAX_LINE_BYTES:
            _refuse_cr_alone(rest, lines_before + len(lines))
            raise Failed(f"Line {lines_before + len(lines) + 1} is longer than 1 MiB: write one address per line.")
        if lines:
            lines_before += len(lines)
            yield [line + b"\n" for line in lines]
    if rest:
        _refuse_cr_alone(rest, lines_before)
        yield [rest]


def refuse_utf_16(beginning: bytes) -> None:
    """Raise Failed if a text begins with the byte order mark of UTF-16."""
    if beginning.startswith(_UTF_16):
        raise Failed("The input is in UTF-16: save it as UTF-8.")


def _refuse_cr_alone(rest: bytes, lines_before: int) -> None:
    """Raise Failed if the input has carriage returns but no line feeds."""
    if not lines_before and b"\r" in rest.rstrip(b"\r"):
        raise Failed(CR_ALONE)


def is_utf_8(text: str) -> bool:
    """Return whether a text of `decode_lines` was valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def may_be_an_address(text: str) -> bool:
    """Return whether a text looks like an address, and so must not be repeated in messages."""
    return _MAY_BE_AN_ADDRESS.search(text) is not None


def decode_lines(lines: list[bytes]) -> list[str]:
    """Return the lines as texts, without their `\\n` and without a byte order mark at the beginning.

    Bytes that are not UTF-8 become lone surrogates, which no address contains, so that every rule refuses them.
    """
    return b"".join(lines).removeprefix(_BOM).decode("utf-8", "surrogateescape").split("\n")[: len(lines)]


class LineNumbering(Generic[T]):
    """Reads pairs of line number and element lazily, and finds the line number of an element by its index.

    Memory grows only with the gaps in the line numbers.
    """

    def __init__(self, source: Iterable[tuple[int, T]]) -> None:
        self._source = source
        self._indices: list[int] = []
        self._offsets: list[int] = []  # line number minus index, from each of these indices on

    def elements(self) -> Iterator[T]:
        """Yield the elements without their numbers. Can be called once."""
        for index, (line, element) in enumerate(self._source):
            offset = line - index
            if not self._offsets or self._offsets[-1] != offset:
                self._indices.append(index)
                self._offsets.append(offset)
            yield element

    def line_of(self, index: int) -> int:
        """Return the line number of an element that was read; indices count from 0."""
        return index + self._offsets[bisect_right(self._indices, index) - 1]


def numbered_addresses(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    number = 0
    for lines in slices_of_lines(stream):
        for text in decode_lines(lines):
            number += 1
            if text and not text.isspace():
                yield number, text
