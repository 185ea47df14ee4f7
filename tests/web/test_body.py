"""Reading bodies: completely, of bounded size, and in time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.errors import BadRequest, RateLimited
from stoplist.web.body import ClientGone, MemoryQuota, read_body
from tests.deployment import in_own_loop

pytestmark = pytest.mark.interpreter

Message = dict[str, Any]


def arriving(*parts: bytes, is_whole: bool = True, yields: bool = False) -> Callable[[], Awaitable[Message]]:
    """Return a `receive` that returns these parts, and then waits for ever."""
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = not is_whole

    async def receive() -> Message:
        if yields or not messages:
            await asyncio.sleep(0)
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    return receive


async def gone() -> Message:
    return {"type": "http.disconnect"}


@given(st.lists(st.binary(max_size=20), min_size=1), st.booleans())
def test_a_body_is_all_its_parts(parts: list[bytes], yields: bool) -> None:
    """It makes no difference if they are there at once or arrive one by one."""
    whole = b"".join(parts)
    assert asyncio.run(read_body(arriving(*parts, yields=yields), [], max_bytes=len(whole))) == whole


@given(st.lists(st.binary(max_size=20), min_size=1).filter(any), st.booleans())
def test_one_byte_too_many_is_refused(parts: list[bytes], yields: bool) -> None:
    """Counted as the parts arrive, whatever was announced."""
    limit = len(b"".join(parts)) - 1
    with pytest.raises(BadRequest, match="larger"):
        asyncio.run(read_body(arriving(*parts, yields=yields), [], max_bytes=limit))


def test_a_too_large_body_is_refused_before_its_end() -> None:
    with pytest.raises(BadRequest, match="larger than 1 KiB"):
        asyncio.run(read_body(arriving(b"x" * 1025, is_whole=False), [], max_bytes=1024))


@pytest.mark.parametrize("announced", [b"8193", b"9" * 17, b"9" * 5000, b"-1", b"x", b"1_0"])
def test_an_announced_size_is_refused_before_anything_is_read(announced: bytes) -> None:
    """A number that Python would not convert is refused too, and a value that is no number."""

    async def receive() -> Message:
        raise AssertionError("nothing may be read")

    with pytest.raises(BadRequest, match="larger than 8 KiB"):
        asyncio.run(read_body(receive, [(b"content-length", announced)], max_bytes=8192))


def test_the_error_names_the_limit_in_a_readable_unit() -> None:
    for max_bytes, text in ((8 << 20, "8 MiB"), (8192, "8 KiB"), (1000, "1000 bytes")):
        with pytest.raises(BadRequest, match=f"larger than {text}\\."):
            asyncio.run(read_body(gone, [(b"content-length", b"9000000")], max_bytes=max_bytes))


@pytest.mark.parametrize("parts", [[], [b"x"] * 5])
def test_a_late_body_is_refused_in_the_words_of_its_connection(parts: list[bytes]) -> None:
    """The deadline may pass before its first part or after another."""
    left = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

    async def receive() -> Message:
        if not left:
            raise TimeoutError("The body did not arrive within 0.05 seconds.")
        return left.pop()

    with pytest.raises(BadRequest, match=r"within 0\.05 seconds"):
        asyncio.run(read_body(receive, [], max_bytes=10))


@pytest.mark.parametrize("first", [[], [b"half"]])
def test_a_disconnected_client_raises_client_gone(first: list[bytes]) -> None:
    """ClientGone is no refusal: nobody would read one."""
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in first]

    async def receive() -> Message:
        await asyncio.sleep(0)
        return messages.pop(0) if messages else await gone()

    with pytest.raises(ClientGone):
        asyncio.run(read_body(receive, [], max_bytes=10))


def test_a_cancelled_reading_ends_at_once() -> None:
    """Cancellation reaches `receive` when the server stops or the request is given up."""
    ended: list[str] = []

    async def receive() -> Message:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("receive")
        raise AssertionError

    async def main() -> None:
        reading = asyncio.create_task(read_body(receive, [], max_bytes=10))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(main())
    assert ended == ["receive"]


# The memory quota


@in_own_loop
async def test_the_memory_of_a_client_is_bounded() -> None:
    """Counted part by part over all its requests; others have their own quota, and a finished request frees it."""
    quota = MemoryQuota(max_bytes=10)
    with (
        quota.reserving("one") as first,
        quota.reserving("one") as second,
        quota.reserving("other") as other,
    ):
        assert await read_body(arriving(b"123", b"456"), [], max_bytes=99, reserve=first) == b"123456"
        assert await read_body(arriving(b"1234"), [], max_bytes=99, reserve=second) == b"1234"
        with pytest.raises(RateLimited) as refused:
            await read_body(arriving(b"5"), [], max_bytes=99, reserve=second)
        assert refused.value.retry_after_s == 1
        assert await read_body(arriving(b"1234567890"), [], max_bytes=99, reserve=other)
    with quota.reserving("one") as reserve:
        assert await read_body(arriving(b"1234567890"), [], max_bytes=99, reserve=reserve) == b"1234567890"


@in_own_loop
async def test_a_failed_request_frees_its_memory() -> None:
    """A client that disconnects or sends too much frees it too."""
    quota = MemoryQuota(max_bytes=10)
    for _ in range(3):
        with pytest.raises(BadRequest), quota.reserving("one") as reserve:
            await read_body(arriving(b"12345", b"6789"), [], max_bytes=8, reserve=reserve)
    with quota.reserving("one") as reserve:
        reserve(10)
