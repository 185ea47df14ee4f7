"""Writes an export to a file: plain, or compressed by gzip or zstd as its name says.

Source: docs/interface.md section D12.
"""

import os
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from stoplist.lists.exports.layouts import CSV, NDJSON
from stoplist.whole_file import whole_file

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOUN = "export"
_GZIP_WBITS, _GZIP_LEVEL = 31, 6
_ZSTD_LEVEL = 3


class _Compressor(Protocol):
    def compress(self, data: bytes) -> bytes: ...
    def flush(self) -> bytes: ...


class _Plain:
    """Leaves a file as it is."""

    def compress(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


_COMPRESSORS: dict[str, Callable[[], _Compressor]] = {
    ".gz": lambda: zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WBITS),
    ".zst": lambda: zstd.ZstdCompressor(level=_ZSTD_LEVEL),
}
_LAYOUT_OF = {".ndjson": NDJSON, ".jsonl": NDJSON}


def layout_of(name: str) -> str:
    """Return the layout that the name of a file asks for: NDJSON for `.ndjson` and `.jsonl`, otherwise CSV."""
    path = Path(name)
    if path.suffix in _COMPRESSORS:
        path = path.with_suffix("")
    return _LAYOUT_OF.get(path.suffix, CSV)


async def write_file(parts: AsyncIterator[bytes], target: Path) -> None:
    """Write the parts to `target`, which appears whole, or not at all.

    Raise Refused if `target` exists or cannot be written, for example because the disk is full.
    """
    compressor = _COMPRESSORS.get(target.suffix, _Plain)()
    with whole_file(target, NOUN) as (_, descriptor), os.fdopen(os.dup(descriptor), "wb") as file:
        async for part in parts:
            file.write(compressor.compress(part))
        file.write(compressor.flush())
        file.flush()
