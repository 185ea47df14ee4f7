"""An export's file appears whole or not at all. docs/interface.md section D12."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoplist.errors import Refused, StoreUnavailable
from stoplist.lists.exports.file import layout_of, write_file


async def parts(size: int, failure: Exception | None = None) -> AsyncIterator[bytes]:
    """Yield parts of `size` bytes in all, and fail then if so told."""
    for _ in range(4):
        yield b"x" * (size // 4)
    if failure is not None:
        raise failure


@contextmanager
def small_disk(max_bytes: int) -> Iterator[None]:
    """Make the operating system refuse to let files of this process grow beyond this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [400, 400_000], ids=["at the end", "in the middle"])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.zst"])
def test_a_full_disk_leaves_no_file(tmp_path: Path, name: str, size: int) -> None:
    """The text says what is wrong."""
    with small_disk(10), pytest.raises(Refused, match=f"cannot be written at .*{name}: File too large"):
        asyncio.run(write_file(parts(size), tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_read_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        asyncio.run(write_file(parts(400, StoreUnavailable("gone")), tmp_path / "x.csv"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_appeared_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "x.csv"

    async def overtaken() -> AsyncIterator[bytes]:
        yield b"ours"
        target.write_bytes(b"theirs")

    with pytest.raises(Refused, match="exists by now"):
        asyncio.run(write_file(overtaken(), target))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"theirs"]


@pytest.mark.parametrize(
    ("name", "layout"),
    [("x.csv", "csv"), ("x", "csv"), ("-", "csv"), ("x.gz", "csv"), ("x.ndjson", "ndjson"), ("x.jsonl.zst", "ndjson")],
)
def test_the_name_says_the_layout(name: str, layout: str) -> None:
    assert layout_of(name) == layout
