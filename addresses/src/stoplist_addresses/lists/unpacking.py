"""Unpacks a file that is gzip, zstd or a zip of one file, known by its content, as a stream.

What an archive claims about sizes is never believed: a reader takes what it unpacks to, piece by piece.
Source: docs/interface.md section D12, Files.
"""

import gzip
import io
import sys
import zipfile
import zlib
from typing import BinaryIO, Protocol, cast

from stoplist_addresses.lists.model import ListError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"PK\x03\x04", b"PK\x05\x06")
# A frame of zstd may demand gigabytes for its window. Its levels up to 20 need at most 32 MiB.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 25}
# Python's readers of bzip2 and LZMA unpack all that they are given at once: gigabytes, from some kilobytes.
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_READ_BYTES = 1 << 20
_BEGINNING = 4


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Unpacked:
    """The bytes of a file, unpacked."""

    def __init__(self, file: BinaryIO, *, max_bytes: int | None = None) -> None:
        beginning, rewound = _beginning_of(file)
        self._source, self._packing = _opened(beginning, rewound)
        self._is_first = True
        self._max_bytes, self._read_bytes = max_bytes, 0

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the end only.

        Raise ListError if the archive is damaged, or unpacks to more than `max_bytes`.
        """
        try:
            data = _read_fully(self._source, size)
        except EOFError:
            raise ListError(f"The {self._packing} file is cut off: its end is missing. Copy it again.") from None
        except (gzip.BadGzipFile, zlib.error, zstd.ZstdError, zipfile.BadZipFile, NotImplementedError) as error:
            if isinstance(error, zstd.ZstdError) and "too much memory" in str(error):
                raise ListError(
                    "The zstd file needs more than 32 MiB to be unpacked: pack it without --ultra and --long."
                ) from None
            raise ListError(f"The {self._packing} file is damaged: copy it again.") from None
        self._read_bytes += len(data)
        if self._max_bytes is not None and self._read_bytes > self._max_bytes:
            raise ListError(f"The file is longer than {self._max_bytes // 1_000_000:,} MB when it is unpacked.")
        if self._is_first:
            self._is_first = False
            if self._packing and _packing_of(data):
                raise ListError("The file is packed twice: unpack it once.")
        return data


def _beginning_of(file: BinaryIO) -> tuple[bytes, BinaryIO]:
    if file.seekable():
        start = file.tell()
        beginning = _read_fully(file, _BEGINNING)
        file.seek(start)
        return beginning, file
    beginning = _read_fully(file, _BEGINNING)
    return beginning, cast("BinaryIO", io.BufferedReader(_Rewound(beginning, file), 1 << 16))


def _opened(beginning: bytes, file: BinaryIO) -> tuple[_Readable, str]:
    packing = _packing_of(beginning)
    if packing == "gzip":
        return gzip.GzipFile(fileobj=file, mode="rb"), packing
    if packing == "zstd":
        return zstd.ZstdFile(file, mode="r", options=_ZSTD_OPTIONS), packing
    if packing == "zip":
        return _only_member(file), packing
    return file, ""


def _packing_of(beginning: bytes) -> str:
    if beginning.startswith(_GZIP):
        return "gzip"
    if beginning.startswith(_ZSTD):
        return "zstd"
    return "zip" if beginning.startswith(_ZIP) else ""


def _only_member(file: BinaryIO) -> _Readable:
    if not file.seekable():
        raise ListError("A zip cannot be read from a pipe, because its table of contents is at its end: name the file.")
    try:
        archive = zipfile.ZipFile(cast("BinaryIO", _ZipSource(file)))
        # `is_dir` raises IndexError for a file without a name.
        files = [each for each in archive.infolist() if not each.filename.endswith("/")]
        members = [each for each in files if not _is_of_macos(each.filename)]
        if len(members) != 1:
            names = ", ".join(each.filename for each in members[:10]) or "none"
            raise ListError(f"A zip must contain exactly one file; this one contains: {names}. Unpack it first.")
        if members[0].compress_type not in _ZIP_METHODS:
            raise NotImplementedError
        return archive.open(members[0])
    except (zipfile.BadZipFile, UnicodeDecodeError):
        raise ListError("The zip file is damaged or cut off: copy it again.") from None
    except NotImplementedError:
        raise ListError("The zip file is compressed in a way that cannot be read: unpack it first.") from None
    except RuntimeError:
        raise ListError("The zip file is encrypted: unpack it first.") from None


def _is_of_macos(name: str) -> bool:
    return name.startswith("__MACOSX/") or name.rpartition("/")[2] == ".DS_Store"


def _read_fully(source: _Readable, size: int) -> bytes:
    data = source.read(size)
    if len(data) == size or not data:
        return data
    pieces = [data]
    missing = size - len(data)
    while missing and (data := source.read(missing)):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


class _ZipSource:
    """The file of a zip, whose table of contents says where to read, and how much."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seekable, self.tell = file.seekable, file.tell

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._file.seek(offset, whence)
        except (OSError, OverflowError, ValueError):
            raise zipfile.BadZipFile from None

    def read(self, size: int = -1) -> bytes:
        # A table of a million files would take a quarter of a minute, and half a gigabyte.
        if size > _MAX_READ_BYTES:
            raise ListError("A zip must contain exactly one file; this one has a longer table of contents.")
        return self._file.read(size)


class _Rewound(io.RawIOBase):
    """A stream that cannot be rewound, with the bytes that were taken from it before it."""

    def __init__(self, beginning: bytes, rest: BinaryIO) -> None:
        self._beginning, self._rest = beginning, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._beginning[: len(buffer)] or self._rest.read(len(buffer))
        self._beginning = self._beginning[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)
