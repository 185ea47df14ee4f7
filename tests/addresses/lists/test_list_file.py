"""The parts of a list: rows with their line numbers, and the digest up to the end of each part."""

import gzip
import hashlib
import io
import sys
import zipfile
from collections.abc import Callable

import pytest
from stoplist_addresses.lists import ListError, ListOptions, open_list

from tests.addresses.lists.reading import AS_OF_MS, NOW_MS, Pipe, addresses, only_part, opened, opt_outs

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.interpreter

ROWS = "email,occurred_at\nann@example.com,1700000000\nbob@example.com,1700000001\n"
TWO = [
    (2, "ann@example.com", 1_700_000_000_000, "import", None),
    (3, "bob@example.com", 1_700_000_001_000, "import", None),
]


def test_rows_of_a_csv_file() -> None:
    part = only_part(ROWS)
    assert part.opt_outs == TWO
    assert (part.rows, part.bad) == (2, [])


def test_preview_says_how_a_file_is_understood() -> None:
    found = opened("E-Mail;Unsubscribed at;Name\nann@example.com;2024-02-29;Ann\n", time_zone="Europe/Berlin")
    assert found.header == ("E-Mail", "Unsubscribed at", "Name")
    assert found.columns == {"address": "E-Mail", "occurred_at": "Unsubscribed at"}
    assert (found.format, found.encoding, found.separator) == (None, "utf-8", ";")
    assert found.time_zone == "Europe/Berlin"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_is_found_by_looking(separator: str) -> None:
    assert opt_outs(ROWS.replace(",", separator)) == TWO
    assert opened(ROWS.replace(",", separator)).separator == separator


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_line_ends_and_encodings_make_no_difference(line_end: str, encoding: str) -> None:
    content = ROWS.replace("ann", "änn").replace("\n", line_end).encode(encoding)
    (part,) = opened(content).parts()
    assert part.opt_outs == [(2, "änn@example.com", 1_700_000_000_000, "import", None), TWO[1]]
    assert part.sha256 == hashlib.sha256(content).hexdigest()


def test_mixed_line_ends_keep_their_line_numbers() -> None:
    content = "email\r\nann@example.com\rbob@example.com\n\r\n\rcid@example.com"
    lines = [each[0] for each in opt_outs(content, as_of_ms=AS_OF_MS)]
    assert lines == [2, 3, 6]


def test_text_has_one_address_a_line() -> None:
    found = opened("ann@example.com\n\nbob@example.com", as_of_ms=AS_OF_MS)
    assert (found.header, found.separator, found.columns) == ((), None, {})
    assert [each[:3] for part in found.parts() for each in part.opt_outs] == [
        (1, "ann@example.com", AS_OF_MS),
        (3, "bob@example.com", AS_OF_MS),
    ]
    assert addresses("+44 20 7946 0958\n+1 (202) 555-0143\n", "sms") == ["+44 20 7946 0958", "+1 (202) 555-0143"]


def test_quoted_cells_may_hold_anything() -> None:
    content = 'email,source\n"ann@example.com","a ""b"", c"\nbob@example.com,"two\r\nlines"\ncid@example.com,\n'
    assert opt_outs(content, as_of_ms=AS_OF_MS) == [
        (2, "ann@example.com", AS_OF_MS, "import", 'a "b", c'),
        (3, "bob@example.com", AS_OF_MS, "import", "two lines"),
        (5, "cid@example.com", AS_OF_MS, "import", None),
    ]


def test_rows_may_be_shorter_or_longer_than_the_header() -> None:
    content = "email,occurred_at,name\nann@example.com\nbob@example.com,1700000001,Bob,x,y\n"
    assert [each[1:3] for each in opt_outs(content, as_of_ms=AS_OF_MS)] == [
        ("ann@example.com", AS_OF_MS),
        ("bob@example.com", 1_700_000_001_000),
    ]


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(
    "rows",
    [
        ["email,name", "ann@example.com,Ann,x", "bob@example.com"],
        ["email,name", "ann@example.com,Ann,x,x,x", "bob@example.com,Bob"],
    ],
)
def test_a_longer_row_moves_no_other(quote: str, rows: list[str]) -> None:
    """It has one cell more, which the next one lacks, or so many that a row would seem to begin in it."""
    content = "".join(quote + row.replace(",", f"{quote},{quote}") + quote + "\n" for row in rows)
    assert addresses(content) == ["ann@example.com", "bob@example.com"]


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_parts_have_the_digest_up_to_their_end(quote: str, rows: int) -> None:
    people = [f"{quote}pérson{number}@example.com{quote},{quote}1700000000{quote}" for number in range(12_000)]
    text = "\n".join(["email,created", *people[:30], "", *people[30:], "", ""])
    lines = text.splitlines(keepends=True)
    end = 0
    for part in list(opened(text).parts(rows=rows))[:50]:
        if part.opt_outs:
            end = part.opt_outs[-1][0]
        assert part.rows == len(part.opt_outs)
        expected = lines[:end] if part.rows == rows else lines
        assert part.sha256 == hashlib.sha256("".join(expected).encode()).hexdigest()


@pytest.mark.parametrize("at", [0, 1, 29, 30, 9_999, 11_999, 12_000])
def test_skipped_rows_are_not_read_again(at: int) -> None:
    people = [f'"pérson{number}@example.com",1700000000' for number in range(12_000)]
    text = "\r\n".join(["email,created", *people[:30], "", *people[30:]])
    whole = list(opened(text).parts(rows=max(at, 1)))
    found = opened(text)
    if at:
        assert found.skip(at) == whole[0].sha256
    rest = [each for part in found.parts() for each in part.opt_outs]
    assert rest == [each for part in whole for each in part.opt_outs][at:]


def test_skip_beyond_the_end_is_refused() -> None:
    with pytest.raises(ListError, match="fewer rows"):
        opened(ROWS).skip(3)


def test_header_alone_is_a_list_of_nobody() -> None:
    part = only_part("email,created\n")
    assert (part.rows, part.opt_outs) == (0, [])
    assert part.sha256 == hashlib.sha256(b"email,created\n").hexdigest()


def _zip(data: bytes, *names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return packed.getvalue()


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, zstd.compress, lambda data: _zip(data, "list.csv", "__MACOSX/._list.csv")],
    ids=["gzip", "zstd", "zip"],
)
def test_packed_files_are_known_by_their_content(pack: Callable[[bytes], bytes]) -> None:
    part = only_part(pack(ROWS.encode()))
    assert part.opt_outs == TWO
    assert part.sha256 == hashlib.sha256(ROWS.encode()).hexdigest()


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
def test_pipes_are_read(pack: Callable[[bytes], bytes]) -> None:
    pipe = Pipe(pack(ROWS.encode()))
    (part,) = open_list(pipe, ListOptions("email", NOW_MS)).parts()
    assert part.opt_outs == TWO


def test_zip_from_a_pipe_is_refused() -> None:
    pipe = Pipe(_zip(ROWS.encode(), "list.csv"))
    with pytest.raises(ListError, match="from a pipe"):
        open_list(pipe, ListOptions("email", NOW_MS))


def test_zip_of_several_files_is_refused_with_their_names() -> None:
    with pytest.raises(ListError, match=r"subscribed\.csv, unsubscribed\.csv"):
        opened(_zip(ROWS.encode(), "subscribed.csv", "unsubscribed.csv"))
