"""Reading lines and CSV tables in slices."""

import csv
import io
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stoplist_client.cli.address_lines import LineNumbering, decode_lines, slices_of_lines
from stoplist_client.cli.csv_table import Table
from stoplist_client.cli.exit_status import Failed


class _SlowStream(io.BytesIO):
    """A stream that returns a fixed number of bytes per read, like a slow pipe."""

    def __init__(self, content: bytes, chunk_bytes: int) -> None:
        super().__init__(content)
        self._chunk_bytes = chunk_bytes

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(self._chunk_bytes)


def _stream(content: bytes, chunk_bytes: int) -> BinaryIO:
    return _SlowStream(content, chunk_bytes)


@given(
    content=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\xf6", "ü".encode()])).map(b"".join),
    chunk_bytes=st.integers(1, 9),
)
def test_lines_do_not_depend_on_chunk_sizes(content: bytes, chunk_bytes: int) -> None:
    """No line is lost or split, and every line has its text."""
    slices = list(slices_of_lines(_stream(content, chunk_bytes)))
    assert b"".join(line for lines in slices for line in lines) == content
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for lines in slices[:-1] for line in lines)
    for lines in slices:
        texts = decode_lines(lines)
        assert [text.encode("utf-8", "surrogateescape") for text in texts] == [
            line.removesuffix(b"\n") for line in lines
        ]


def test_lines_are_yielded_as_they_arrive() -> None:
    """A program can write a line into a pipe and wait for its answer."""
    lines = slices_of_lines(_stream(b"ann\nbob\nc", 4))
    assert [next(lines), next(lines), next(lines)] == [[b"ann\n"], [b"bob\n"], [b"c"]]


def test_endless_line_is_refused() -> None:
    """Memory stays bounded for a file that is not text."""
    with pytest.raises(Failed, match="Line 2 is longer"):
        list(slices_of_lines(io.BytesIO(b"a\n" + b"x" * (3 << 20))))


@pytest.mark.parametrize("content", [b"ann\rbob\r", b"ann\rbob", b"ann\r" * 400_000])
def test_carriage_returns_alone_are_refused(content: bytes) -> None:
    """Otherwise the whole file would count as one address, or as one line that is too long."""
    with pytest.raises(Failed, match="carriage return only"):
        list(slices_of_lines(io.BytesIO(content)))
    assert list(slices_of_lines(io.BytesIO(b"ann\r"))) == [[b"ann\r"]]


def test_line_numbers_count_skipped_lines() -> None:
    numbered = LineNumbering([(1, "a"), (2, "b"), (5, "c"), (6, "d"), (9, "e")])
    assert list(numbered.elements()) == ["a", "b", "c", "d", "e"]
    assert [numbered.line_of(index) for index in range(5)] == [1, 2, 5, 6, 9]


_CELLS = st.text(st.sampled_from('ab ;,"\r\n\t€'), max_size=5)


@given(
    rows=st.lists(st.lists(_CELLS, min_size=1, max_size=3), max_size=8),
    line_end=st.sampled_from(["\n", "\r\n"]),
    has_mark=st.booleans(),
    chunk_bytes=st.integers(1, 40),
)
def test_every_row_keeps_its_bytes(rows: list[list[str]], line_end: str, has_mark: bool, chunk_bytes: int) -> None:
    """Cells are those that were written, even if quoted; the bytes of all rows are those of the file."""
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([["email", "b"], *rows])
    content = (b"\xef\xbb\xbf" if has_mark else b"") + text.getvalue().encode()
    table = Table(_stream(content, chunk_bytes), delimiter=",")
    read = list(table)
    assert table.names == ["email", "b"]
    assert [cells for _, cells, _ in read] == rows
    assert b"".join([table.header, *(raw for _, _, raw in read)]) == content
    lines = content.split(b"\n")
    for number, _, raw in read:
        assert raw.split(b"\n")[0] == lines[number - 1]


def test_many_rows_keep_their_numbers_and_bytes() -> None:
    """More rows than are kept in memory at once."""
    rows = [b'r%d,"x\ny"\n' % number if number % 7 == 0 else b"r%d,x\n" % number for number in range(50_000)]
    table = Table(io.BytesIO(b"email,b\n" + b"".join(rows)), delimiter=None)
    line = 2
    for (number, cells, raw), wanted in zip(table, rows, strict=True):
        assert (number, cells[0].encode(), raw) == (line, wanted.partition(b",")[0], wanted)
        line += wanted.count(b"\n")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_detected_from_the_header(delimiter: str) -> None:
    """It is the one that makes the most columns; a quoted cell counts as one."""
    table = Table(io.BytesIO(f'"a,b"{delimiter}email{delimiter}c\n'.encode()), delimiter=None)
    assert table.names == ["a,b", "email", "c"]
    assert table.address_column("email", None) == 1


@pytest.mark.parametrize(
    ("channel", "header", "named", "column"),
    [
        ("email", "id,E-Mail", None, 1),
        ("email", "id,Address", None, 1),
        ("email", "id,E-Mail_Address", None, 1),
        ("sms", "email,Mobile", None, 1),
        ("phone", "email,phone", None, 1),
        ("email", "email,other mail", "other mail", 1),
        ("email", "Mail,MAIL", "MAIL", 1),
        ("email", "id,contact", "2", 1),
        ("email", "2,contact", "2", 0),
    ],
)
def test_address_column_is_found(channel: str, header: str, named: str | None, column: int) -> None:
    """It has a usual name of the channel, or the given one: exactly, then ignoring case, then as a number."""
    assert Table(io.BytesIO(header.encode()), delimiter=None).address_column(channel, named) == column


@pytest.mark.parametrize("named", ["nothing", "0", "3", "mail"])
def test_unknown_column_is_refused(named: str) -> None:
    """The message lists the columns of the file."""
    with pytest.raises(Failed, match="The columns are: id, contact"):
        Table(io.BytesIO(b"id,contact"), delimiter=None).address_column("email", named)
