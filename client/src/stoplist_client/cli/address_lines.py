"""Lines of addresses, read as they come and never all at once."""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Generic, TypeVar

from stoplist_client.cli.exit_status import Failed, tell

T = TypeVar("T")

_MOST_BYTES = 1 << 20
_CHUNK = 1 << 18
_BOM = b"\xef\xbb\xbf"
_MAY_BE_AN_ADDRESS = re.compile(r"@|\d{4}")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

CR_ALONE = "The lines end with a carriage return alone: save the file with LF, or CR LF, at the end of its lines."
NOT_UTF_8 = "This is not UTF-8: save the file as UTF-8."


def standard_input(what: str) -> BinaryIO:
    """The bytes of stdin; whoever sits before it is told what to type."""
    if sys.stdin is None:
        raise Failed("The standard input is closed: open it, or give addresses as arguments.")
    stream = sys.stdin.buffer
    if stream.isatty():
        tell(f"Type {what}, and Ctrl+D at the end.")
    return stream


def slices_of_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """All lines with the `\\n` at their end, empty ones included, in slices as they arrive. A byte order mark stays."""
    read = getattr(stream, "read1", stream.read)
    rest, lines_before = b"", 0
    while chunk := read(_CHUNK):
        if not lines_before:
            refuse_utf_16(rest + chunk)
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _MOST_BYTES:
            _refuse_cr_alone(rest, lines_before + len(lines))
            raise Failed(f"Line {lines_before + len(lines) + 1} is longer than 1 MiB: is this a list of addresses?")
        if lines:
            lines_before += len(lines)
            yield [line + b"\n" for line in lines]
    if rest:
        _refuse_cr_alone(rest, lines_before)
        yield [rest]


def refuse_utf_16(beginning: bytes) -> None:
    """Failed where a text begins with the byte order mark of UTF-16."""
    if beginning.startswith(_UTF_16):
        raise Failed("The input is in UTF-16: save it as UTF-8.")


def _refuse_cr_alone(rest: bytes, lines_before: int) -> None:
    """Failed where the whole input has no line feed, and carriage returns within it."""
    if not lines_before and b"\r" in rest.rstrip(b"\r"):
        raise Failed(CR_ALONE)


def is_utf_8(text: str) -> bool:
    """Whether a text of `texts_of` was one, and not bytes of another encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def may_be_an_address(text: str) -> bool:
    """Whether a text that was meant for something else is better not repeated."""
    return _MAY_BE_AN_ADDRESS.search(text) is not None


def texts_of(lines: list[bytes]) -> list[str]:
    """The lines as texts, without the `\\n` at their end, and without a byte order mark at the beginning.

    Bytes that are not UTF-8 become what no address holds, so that every rule refuses it.
    """
    return b"".join(lines).removeprefix(_BOM).decode("utf-8", "surrogateescape").split("\n")[: len(lines)]


class Numbered(Generic[T]):
    """Elements that are read lazily, and the number of the line that each came from.

    `source` gives pairs of line number and element; only where the numbers skip something anything is remembered.
    """

    def __init__(self, source: Iterable[tuple[int, T]]) -> None:
        self._source = source
        self._indices: list[int] = []
        self._ahead: list[int] = []  # from each of these indices on, by how much the line number is ahead

    def elements(self) -> Iterator[T]:
        """The elements alone, once."""
        for index, (line, element) in enumerate(self._source):
            ahead = line - index
            if not self._ahead or self._ahead[-1] != ahead:
                self._indices.append(index)
                self._ahead.append(ahead)
            yield element

    def line_of(self, index: int) -> int:
        """The line number of an element that was read; indices count from 0."""
        return index + self._ahead[bisect_right(self._indices, index) - 1]


def numbered_addresses(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers from 1."""
    number = 0
    for lines in slices_of_lines(stream):
        for text in texts_of(lines):
            number += 1
            if text and not text.isspace():
                yield number, text
