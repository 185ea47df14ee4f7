"""Fixtures of the tests of lists: the current time, and files as bytes."""

import io
from typing import Any

from stoplist_addresses.lists import ListFile, ListOptions, OptOut, Part, open_list

from tests.constants import DAY_MS

NOW_MS = 1_790_000_000_000  # 2026-09-21T13:33:20Z
AS_OF_MS = NOW_MS - DAY_MS


class _SmallReads(io.RawIOBase):
    def __init__(self, data: bytes, size: int) -> None:
        self._rest, self._size = io.BytesIO(data), size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._rest.readinto(buffer[: self._size])


class Pipe(io.BufferedReader):
    """Bytes that arrive `size` at a time, and cannot be rewound."""

    def __init__(self, data: bytes, size: int = 3) -> None:
        super().__init__(_SmallReads(data, size))


def opened(content: bytes | str, channel: str = "email", **options: Any) -> ListFile:
    """Return a list of this content."""
    data = content.encode() if isinstance(content, str) else content
    return open_list(io.BytesIO(data), ListOptions(channel, NOW_MS, **options))


def only_part(content: bytes | str, channel: str = "email", **options: Any) -> Part:
    """Return the one part of a list."""
    (part,) = opened(content, channel, **options).parts()
    return part


def opt_outs(content: bytes | str, channel: str = "email", **options: Any) -> list[OptOut]:
    """Return the opt-outs of a list."""
    return [each for part in opened(content, channel, **options).parts() for each in part.opt_outs]


def addresses(content: bytes | str, channel: str = "email", **options: Any) -> list[str]:
    """Return the addresses of a list whose time does not matter."""
    return [each[1] for each in opt_outs(content, channel, as_of_ms=AS_OF_MS, **options)]
