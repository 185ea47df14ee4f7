"""A stream that cannot be rewound, such as a pipe, and a copy of what was read of it.

Source: docs/interface.md section D12, Files.
"""

import io
import tempfile
from typing import BinaryIO

_IN_MEMORY_BYTES = 1 << 20  # more of it goes to an unnamed file in the temporary folder


class RewindableStream(io.RawIOBase):
    """Copies what is read until `rewind` or `stop_copying` is called, one of them once. Leaves its source open."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._copy = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, prefix="stoplist-")  # noqa: SIM115 (see close)
        self._is_copying = True

    def rewind(self) -> None:
        """Begin again: what was read is read once more, then the rest of the source."""
        self._is_copying = False
        self._copy.seek(0)

    def stop_copying(self) -> None:
        """Go on with the source, and delete the copy."""
        self._is_copying = False
        self._copy.close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = len(buffer)
        if self._is_copying:
            data = self._source.read(size)
            self._copy.write(data)
        else:
            data = self._read_copy(size) or self._source.read(size)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._copy.close()
        super().close()

    def _read_copy(self, size: int) -> bytes:
        if self._copy.closed:
            return b""
        data = self._copy.read(size)
        if not data:
            self._copy.close()
        return data
