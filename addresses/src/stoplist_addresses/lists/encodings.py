"""Finds the encoding of a file by its byte order mark, and reads its bytes as text.

Source: docs/interface.md section D12, Files.
"""

import codecs
from dataclasses import dataclass

from stoplist_addresses.lists.model import ListError

# Encodings whose bytes can be cut into lines before they are decoded: in all of these the bytes of LF and CR mean
# nothing else, and nothing is carried from one line to the next (unlike UTF-7 and ISO 2022).
_BY_BYTES = frozenset(
    {
        "ascii", "big5", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
        "cp437", "cp850", "cp852", "cp855", "cp858", "cp866", "cp874", "cp932", "cp949", "cp950", "euc_jp",
        "euc_kr", "gb18030", "gb2312", "gbk", "iso8859-1", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5",
        "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-10", "iso8859-11", "iso8859-13", "iso8859-14",
        "iso8859-15", "iso8859-16", "koi8-r", "koi8-u", "mac-roman", "shift_jis", "utf-8",
    }
)  # fmt: skip
_UTF_16 = frozenset({"utf-16", "utf-16-le", "utf-16-be"})
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoding of text. `line_feed` and `carriage_return` are those of the encoding, in bytes."""

    name: str
    codec: str
    line_feed: bytes = b"\n"
    carriage_return: bytes = b"\r"

    @property
    def unit(self) -> int:
        """Return the number of bytes of the smallest unit."""
        return len(self.line_feed)

    def decode(self, data: bytes, *, first_line: int) -> str:
        """Return whole lines as text. Raise ListError naming the line that is not of this encoding."""
        try:
            text = data.decode(self.codec)
        except UnicodeDecodeError as error:
            line = first_line + count_line_ends(data[: error.start].decode(self.codec, errors="replace"))
            raise ListError(
                f"Line {line} is not {self.name.upper()}: save the file as UTF-8, or say its encoding.",
                option="encoding",
            ) from None
        if "\0" in text:
            line = first_line + count_line_ends(text[: text.index("\0")])
            raise ListError(
                f"Line {line} contains NUL, so this is not text in {self.name.upper()}, or it is damaged. "
                "UTF-16 without a byte order mark must be stated, as utf-16-le or utf-16-be.",
                option="encoding",
            )
        return text

    def length(self, text: str) -> int:
        """Return the number of bytes from which `text` was decoded."""
        return len(text) * self.unit if text.isascii() else len(text.encode(self.codec))

    def last_line_end(self, data: bytes, *, is_last: bool) -> int:
        """Return where the last whole line of `data` ends; 0 if no line does.

        A carriage return at the very end is left for later: a line feed may follow it.
        """
        after_line_feed = self._end_of_last(self.line_feed, data, len(data))
        limit = len(data) if is_last else len(data) - self.unit
        return max(after_line_feed, self._end_of_last(self.carriage_return, data, limit))

    def _end_of_last(self, mark: bytes, data: bytes, limit: int) -> int:
        at = data.rfind(mark, 0, max(limit, 0))
        while at % self.unit and at >= 0:
            at = data.rfind(mark, 0, at + self.unit - 1)
        return at + self.unit if at >= 0 else 0


def count_line_ends(text: str) -> int:
    """Return the number of line ends: LF, CRLF and CR."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def find_encoding(beginning: bytes, named: str | None) -> tuple[Encoding, int]:
    """Return the encoding of a file that begins with these bytes, and the length of its byte order mark.

    Raise ListError if an encoding is named that the reader does not know.
    """
    marked = next(((mark, name) for mark, name in _MARKS if beginning.startswith(mark)), None)
    if named is None:
        return (_encoding("utf-8"), 0) if marked is None else (_encoding(marked[1]), len(marked[0]))
    name = _canonical_name(named)
    if marked is not None and (marked[1] == name or marked[1].startswith(f"{name}-")):
        return _encoding(marked[1]), len(marked[0])
    if name == "utf-16":
        raise ListError(
            "The file has no byte order mark: say whether its encoding is utf-16-le or utf-16-be.",
            is_usage=True,
            option="encoding",
        )
    return _encoding(name), 0


def _canonical_name(named: str) -> str:
    try:
        name = codecs.lookup(named).name
    except LookupError:
        name = ""
    if name == "utf-8-sig":
        return "utf-8"
    if name not in _BY_BYTES | _UTF_16:
        raise ListError(
            "The encoding is not known: name one such as utf-8, utf-16, windows-1252, iso-8859-1, iso-8859-15 or "
            "shift_jis.",
            is_usage=True,
            option="encoding",
        )
    return name


def _encoding(name: str) -> Encoding:
    if name in _UTF_16:
        return Encoding(name, name, "\n".encode(name), "\r".encode(name))
    return Encoding(name, name)
