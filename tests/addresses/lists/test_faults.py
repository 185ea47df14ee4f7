"""Files that are broken, hostile or not lists at all: a clear word, soon, and without holding what they unpack to."""

import contextlib
import gzip
import io
import struct
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable

import pytest
from stoplist_addresses.lists import ListError, ListOptions, open_list

from tests.addresses.lists.reading import AS_OF_MS, NOW_MS, addresses, opened
from tests.constants import MIB

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.interpreter

HEAD = "email,name\n"


class _Endless(io.RawIOBase):
    """A head, and then the same bytes for ever, of which no more than a MiB may be read."""

    def __init__(self, head: bytes, rest: bytes) -> None:
        self._head, self._rest = head, rest
        self._read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] or (self._rest * (len(buffer) // len(self._rest) + 1))[: len(buffer)]
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        self._read_bytes += len(data)
        assert self._read_bytes <= MIB
        return len(data)


def _read_all(stream: io.RawIOBase) -> None:
    found = open_list(io.BufferedReader(stream), ListOptions("email", NOW_MS, as_of_ms=AS_OF_MS))
    for _ in found.parts():
        pass


@pytest.mark.parametrize(
    ("head", "rest", "text"),
    [
        ("", "a", "Line 1 is longer than 64 KiB"),
        (HEAD + "ann@example.com,Ann\n", "a", "Line 3 is longer than 64 KiB"),
        (HEAD + '"ann@example.com,Ann\n', "b@example.com,B\n", "row that begins on line 2 is longer than 64 KiB"),
        (HEAD + '"ann@example.com,Ann\n', "\n", "row that begins on line 2 is longer than 64 KiB"),
        ('"email,name\n', "b@example.com,B\n", "longer than 64 KiB"),
        (HEAD, "\0", "Line 2"),
    ],
)
def test_line_without_end_is_refused_soon(head: str, rest: str, text: str) -> None:
    with pytest.raises(ListError, match=text):
        _read_all(_Endless(head.encode(), rest.encode()))


def _bomb(pack: str) -> bytes:
    """Return some kilobytes that unpack to 256 MiB of one line."""
    if pack == "zip":
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("list.csv", "w") as member:
            for _ in range(256):
                member.write(b"a" * MIB)
        return packed.getvalue()
    if pack == "zstd":
        compressor = zstd.ZstdCompressor()
        return b"".join(compressor.compress(b"a" * MIB) for _ in range(256)) + compressor.flush()
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(b"a" * MIB) for _ in range(256)) + packer.flush()


@pytest.mark.parametrize("pack", ["gzip", "zstd", "zip"])
def test_bomb_is_refused_without_unpacking_it(pack: str) -> None:
    packed = _bomb(pack)
    assert len(packed) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(ListError, match="Line 1 is longer than 64 KiB"):
            opened(packed, as_of_ms=AS_OF_MS)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 8 * MIB


def test_memory_does_not_grow_with_the_file() -> None:
    def most_bytes(rows: int) -> int:
        stream = io.BytesIO(gzip.compress(HEAD.encode() + b'ann@example.com,"A ""n"" n"\n' * rows))
        tracemalloc.start()
        try:
            found = open_list(stream, ListOptions("email", NOW_MS, as_of_ms=AS_OF_MS))
            assert sum(len(part.opt_outs) for part in found.parts()) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert most_bytes(200_000) < 1.1 * most_bytes(40_000)


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_archive_that_is_cut_off_is_refused(pack: Callable[[bytes], bytes]) -> None:
    packed = pack(HEAD.encode() + b"".join(b"a%d@example.com,x\n" % number for number in range(50_000)))
    with pytest.raises(ListError, match="is cut off"):
        list(opened(packed[:-5], as_of_ms=AS_OF_MS).parts())


def test_zip_that_is_cut_off_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("list.csv", HEAD)
    with pytest.raises(ListError, match="damaged or cut off"):
        opened(packed.getvalue()[:-5], as_of_ms=AS_OF_MS)


def test_damaged_archive_is_refused() -> None:
    packed = bytearray(gzip.compress(HEAD.encode() + b"".join(b"a%d@example.com,x\n" % each for each in range(50_000))))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(ListError, match=r"gzip file is (damaged|cut off)"):
        list(opened(bytes(packed), as_of_ms=AS_OF_MS).parts())


def test_zip_that_lies_about_its_size_is_refused() -> None:
    content = HEAD.encode() + b"ann@example.com,Ann\n" * 1000
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("list.csv", content)
    lie = packed.getvalue().replace(len(content).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    with pytest.raises(ListError, match="damaged"):
        list(opened(lie, as_of_ms=AS_OF_MS).parts())


def test_file_that_is_packed_twice_is_refused() -> None:
    with pytest.raises(ListError, match="packed twice"):
        opened(gzip.compress(gzip.compress(HEAD.encode())), as_of_ms=AS_OF_MS)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_that_is_not_deflated_is_refused(method: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("list.csv", HEAD)
    with pytest.raises(ListError, match="compressed in a way that cannot be read"):
        opened(packed.getvalue(), as_of_ms=AS_OF_MS)


def test_zip_of_countless_files_is_refused_soon() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("list.csv", HEAD)
    entry = packed.getvalue()[packed.getvalue().index(b"PK\x01\x02") : packed.getvalue().index(b"PK\x05\x06")]
    entries = entry * (2 * MIB // len(entry))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFE, 0xFFFE, len(entries), 4, 0)
    with pytest.raises(ListError, match="table of contents"):
        opened(b"PK\x03\x04" + entries + end, as_of_ms=AS_OF_MS)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_zip_with_any_wrong_byte_is_read_or_refused(mask: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("jörg.csv", HEAD + "ann@example.com,Ann\n" * 3)
    for at in range(len(packed.getvalue())):
        damaged = bytearray(packed.getvalue())
        damaged[at] ^= mask
        with contextlib.suppress(ListError):
            list(opened(bytes(damaged), as_of_ms=AS_OF_MS).parts())


def test_encrypted_zip_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("list.csv", HEAD)
    data = bytearray(packed.getvalue())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ListError, match="encrypted"):
        opened(bytes(data), as_of_ms=AS_OF_MS)


def test_zstd_that_needs_a_huge_window_is_refused() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    compressor = zstd.ZstdCompressor(options=options)
    packed = compressor.compress(HEAD.encode() * 1000) + compressor.flush()
    with pytest.raises(ListError, match="32 MiB"):
        opened(packed, as_of_ms=AS_OF_MS)


@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_file_is_refused(content: bytes) -> None:
    with pytest.raises(ListError, match="file is empty"):
        opened(content, as_of_ms=AS_OF_MS)


def test_encoding_is_never_guessed() -> None:
    content = f"{HEAD}ann@example.com,Ann\njörg@example.com,Jörg\n"
    with pytest.raises(ListError, match="Line 3 is not UTF-8") as refusal:
        opened(content.encode("iso-8859-1"), as_of_ms=AS_OF_MS)
    assert refusal.value.option == "encoding"
    for name in ("iso-8859-1", "windows-1252", "latin9"):
        assert addresses(content.encode("iso-8859-1"), encoding=name)[1] == "jörg@example.com"
    assert addresses(content.encode("utf-16-be"), encoding="utf-16-be")[1] == "jörg@example.com"
    assert addresses(f"{HEAD}山田@example.com,\n".encode("shift_jis"), encoding="shift_jis") == ["山田@example.com"]


@pytest.mark.parametrize("first_line", [" " * 60_000 + "x", " " * 30_000 + "1" + " " * 30_000 + "x"])
@pytest.mark.timeout(60)
def test_first_line_of_spaces_is_refused_soon(first_line: str) -> None:
    """A search that tries each way to split the spaces would never end."""
    with pytest.raises(ListError, match="neither an address nor a usual name"):
        opened(f"{first_line}\n+442079460018\n", channel="sms", as_of_ms=AS_OF_MS)


@pytest.mark.parametrize("name", ["utf-7", "rot13", "idna", "klingon", "utf-16"])
def test_unknown_encoding_is_wrong_usage(name: str) -> None:
    with pytest.raises(ListError) as refusal:
        opened(HEAD, as_of_ms=AS_OF_MS, encoding=name)
    assert (refusal.value.is_usage, refusal.value.option) == (True, "encoding")


@pytest.mark.parametrize("content", [f"{HEAD}a@example.com,x\nb\0@example.com,y\n".encode(), HEAD.encode("utf-16-le")])
def test_nul_ends_the_reading(content: bytes) -> None:
    with pytest.raises(ListError, match=r"Line \d contains NUL"):
        opened(content, as_of_ms=AS_OF_MS)


def test_error_names_the_line_far_into_the_file() -> None:
    rows = "".join(f"a{number}@example.com,x\r\n" for number in range(30_000))
    found = opened(f"{HEAD}{rows}".encode() + b"b@example.com,\xff\n", as_of_ms=AS_OF_MS)
    with pytest.raises(ListError, match="Line 30002 is not UTF-8"):
        list(found.parts())


@pytest.mark.parametrize("row", ['"ann"x@example.com,Ann', '"ann@example.com" ,Ann'])
def test_wrong_quotes_are_refused_with_their_line(row: str) -> None:
    with pytest.raises(ListError, match="row that begins on line 3 is not valid CSV"):
        list(opened(f'{HEAD}"a@example.com","x"\n{row}\n', as_of_ms=AS_OF_MS).parts())


def test_quote_that_is_never_closed_is_refused() -> None:
    with pytest.raises(ListError, match="line 3 has a quote that is never closed"):
        list(opened(f'{HEAD}a@example.com,x\n"b@example.com,x\nc@example.com\n', as_of_ms=AS_OF_MS).parts())


def test_longest_row_is_read() -> None:
    long = "x" * 65_000
    assert addresses(f'{HEAD}a@example.com,{long}\nb@example.com,"{long}"\n') == ["a@example.com", "b@example.com"]
