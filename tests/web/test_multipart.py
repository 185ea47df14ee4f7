"""Forms with files, read while they arrive. RFC 7578."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.errors import BadRequest
from stoplist.web.multipart import FormPart, MultipartReader
from tests.deployment import in_own_loop

BOUNDARY = "--x"
TYPE = b"multipart/form-data; boundary=--x"
HEAD = 'Content-Disposition: form-data; name="{}"'


def encoded(parts: list[tuple[str, bytes]]) -> bytes:
    """Return a form of these heads and contents."""
    body = b"".join(f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + content + b"\r\n" for head, content in parts)
    return body + f"--{BOUNDARY}--\r\n".encode()


def read(body: bytes, sizes: list[int], content_type: bytes = TYPE) -> list[tuple[FormPart, bytes]]:
    """Return the parts of a form that arrives in chunks of these sizes."""

    async def chunks() -> AsyncIterator[bytes]:
        at = 0
        while at < len(body):
            size = sizes[at % len(sizes)]
            yield body[at : at + size]
            at += size

    async def steps() -> list[Any]:
        reader, found = MultipartReader(chunks(), content_type), []
        while (part := await reader.next_part()) is not None:
            found.append((part, b"".join([piece async for piece in reader.content()])))
        return found

    return asyncio.run(steps())


@given(
    contents=st.lists(st.lists(st.sampled_from([b"\r", b"\n", b"-", b"--x", b"\r\n--", b"a", b"\0"])).map(b"".join)),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_contents_arrive_as_they_were_sent(contents: list[bytes], sizes: list[int]) -> None:
    """However the form is cut, and whatever resembles the delimiter without being it."""
    contents = [each for each in contents if b"\r\n----x" not in b"\r\n" + each + b"\r\n"]
    body = encoded([(HEAD.format(f"f{number}"), content) for number, content in enumerate(contents)])
    assert read(body, sizes) == [(FormPart(f"f{number}", None), content) for number, content in enumerate(contents)]


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (HEAD.format("a"), FormPart("a", None)),
        (HEAD.format("file") + '; filename="list.csv"\r\nContent-Type: text/csv', FormPart("file", "list.csv")),
        ('content-disposition:form-data;filename="";name="file"', FormPart("file", "")),
        (HEAD.format("file") + '; filename="a%22b;c.csv"', FormPart("file", 'a"b;c.csv')),
        (HEAD.format("file") + r'; filename="a\"b.csv"', FormPart("file", 'a"b.csv')),
        (HEAD.format("file") + r'; filename="C:\lists\März.csv"', FormPart("file", "März.csv")),
        ("X-Other: 1\r\n" + HEAD.format("b"), FormPart("b", None)),
    ],
)
def test_heads_are_read_as_browsers_write_them(head: str, part: FormPart) -> None:
    assert read(encoded([(head, b"1")]), [7]) == [(part, b"1")]


def test_a_preamble_and_an_epilogue_mean_nothing() -> None:
    body = b"preamble\r\n" + encoded([(HEAD.format("a"), b"1")]) + b"epilogue"
    assert read(body, [5], b'multipart/form-data; charset=utf-8; boundary="--x"') == [(FormPart("a", None), b"1")]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (encoded([]), b"application/x-www-form-urlencoded"),
        (encoded([]), b"multipart/form-data"),
        (b"", TYPE),
        (encoded([(HEAD.format("a"), b"1")])[:-10], TYPE),
        (encoded([("Content-Disposition: form-data", b"1")]), TYPE),
        (encoded([("X: 1", b"1")]), TYPE),
        (encoded([(HEAD.format("a") + f"\r\nX: {'x' * 9_000}", b"1")]), TYPE),
        (encoded([(HEAD.format("a"), b"1")] * 201), TYPE),
        (encoded([(HEAD.format("a"), b"1")]).replace(b'"a"', b'"\xff"'), TYPE),
    ],
)
def test_malformed_forms_are_refused(body: bytes, content_type: bytes) -> None:
    """One that ends early too: a file that was cut off must not look complete."""
    with pytest.raises(BadRequest):
        read(body, [100], content_type)


@pytest.mark.parametrize("content", [b"12345", b"\xff", b"\0"])
@in_own_loop
async def test_fields_are_bounded_text(content: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield encoded([(HEAD.format("a"), content)])

    reader = MultipartReader(chunks(), TYPE)
    await reader.next_part()
    with pytest.raises(BadRequest):
        await reader.text(max_bytes=4)
