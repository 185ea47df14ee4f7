"""Cuts the bytes of a file into blocks of whole lines, in constant memory.

Source: docs/interface.md section D12, Files.
"""

import hashlib
import re
from dataclasses import dataclass
from itertools import islice

from stoplist_addresses.lists.encodings import Encoding, count_line_ends
from stoplist_addresses.lists.model import ListError
from stoplist_addresses.lists.unpacking import Unpacked

MAX_ROW_BYTES = 64 * 1024
_BLOCK_BYTES = 256 * 1024
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(slots=True)
class Block:
    """Whole lines of a file. In `lines`, every one of the `line_count` lines ends with LF alone."""

    data: bytes
    text: str
    lines: str
    line_count: int
    first_line: int
    is_last: bool
    encoding: Encoding
    has_lone_returns: bool  # carriage returns without line feed, which end lines, too
    _taken_lines: int = 0
    _taken_characters: int = 0
    _taken_bytes: int = 0

    def cut(self, line_count: int) -> bytes:
        """Keep the first lines alone, and return the bytes of the others. Nothing must have been taken before."""
        end = self._end_of(line_count)
        length = self.encoding.length(self.text[:end])
        rest = self.data[length:]
        self.data, self.text, self.line_count = self.data[:length], self.text[:end], line_count
        return rest

    def take(self, line_count: int) -> bytes:
        """Return the bytes of the first `line_count` lines, without those that were taken before."""
        begin = self._taken_bytes
        characters = self._end_of(line_count)
        end = begin + self.encoding.length(self.text[self._taken_characters : characters])
        self._taken_lines, self._taken_characters, self._taken_bytes = line_count, characters, end
        return self.data[begin:end]

    def length_of(self, begin: int, end: int) -> int:
        """Return the number of bytes of the lines from `begin` to before `end`, each with one line end."""
        lines = self.lines.split("\n", end)[begin:end]
        return self.encoding.length("\n".join(lines)) + self.encoding.unit

    def _end_of(self, line_count: int) -> int:
        """Return the index in `text` at which the first `line_count` lines end."""
        if line_count == self.line_count:  # the last line of a file need not end
            return len(self.text)
        at, more = self._taken_characters, line_count - self._taken_lines
        if self.has_lone_returns:
            ends = islice(_LINE_END.finditer(self.text, at), more)
            return max((match.end() for match in ends), default=at)
        find = self.text.index
        for _ in range(more):
            at = find("\n", at) + 1
        return at


class BlockReader:
    """Reads blocks, and keeps the SHA-256 of what was taken of them."""

    def __init__(self, source: Unpacked, encoding: Encoding, *, beginning: bytes, mark_length: int) -> None:
        self._source, self._encoding = source, encoding
        self._buffer = beginning[mark_length:]
        self._is_at_end = False
        self._next_line = 1
        self._sha256 = hashlib.sha256(beginning[:mark_length])
        self.taken_bytes = mark_length

    @property
    def sha256(self) -> str:
        """The SHA-256 of everything that was taken, in hexadecimal."""
        return self._sha256.hexdigest()

    def take(self, data: bytes) -> None:
        """Add the next bytes of a block to what was taken."""
        self._sha256.update(data)
        self.taken_bytes += len(data)

    def put_back(self, data: bytes, line: int) -> None:
        """Begin the next block with these bytes, whose first line has this number."""
        self._buffer = data + self._buffer
        self._next_line = line

    def read(self) -> Block | None:
        """Return the next block; None at the end. Raise ListError at a line of more than MAX_ROW_BYTES."""
        if not self._is_at_end:
            more = self._source.read(_BLOCK_BYTES)
            self._is_at_end = len(more) < _BLOCK_BYTES
            self._buffer += more
        data = self._buffer
        if not data:
            return None
        self._refuse_long_lines(data)
        end = len(data) if self._is_at_end else self._encoding.last_line_end(data, is_last=False)
        self._buffer = data[end:]
        return self._block(data[:end])

    def _refuse_long_lines(self, data: bytes) -> None:
        begin = 0
        while len(data) - begin > MAX_ROW_BYTES:
            length = self._encoding.last_line_end(data[begin : begin + MAX_ROW_BYTES], is_last=False)
            if not length:
                line = self._next_line + count_line_ends(data[:begin].decode(self._encoding.codec, errors="replace"))
                raise ListError(
                    f"Line {line} is longer than 64 KiB: a list has one row a line. If it has, say its encoding.",
                    option="encoding",
                )
            begin += length

    def _block(self, data: bytes) -> Block:
        first_line = self._next_line
        text = self._encoding.decode(data, first_line=first_line)
        lines = text.replace("\r\n", "\n") if "\r" in text else text
        has_lone_returns = "\r" in lines
        if has_lone_returns:
            lines = lines.replace("\r", "\n")
        if not lines.endswith("\n"):
            lines += "\n"
        line_count = lines.count("\n")
        self._next_line += line_count
        return Block(data, text, lines, line_count, first_line, self._is_at_end, self._encoding, has_lone_returns)
