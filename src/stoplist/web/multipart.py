"""Forms with a file (`multipart/form-data`), read while they arrive: a file may be larger than memory.

Source: RFC 7578; the HTML standard, section "Multipart form data".
"""

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

from stoplist.errors import BadRequest

_MAX_HEAD_BYTES = 8 * 1024
_MAX_PARTS = 200
_BOUNDARY = re.compile(rb"""\Amultipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.I)
_DISPOSITION = re.compile(rb"^content-disposition:[ \t]*form-data(.*)$", re.I | re.M)
_PARAMETER = re.compile(rb""";[ \t]*(name|filename)="((?:[^"\\]|\\.)*)\"""", re.I)
_MALFORMED = "The form was sent in an unsupported format. Go back and try again."


class FormPart(NamedTuple):
    """The head of a part. `file_name` is None for a plain field."""

    name: str
    file_name: str | None


class MultipartReader:
    """Reads the parts of a form in order: after each `next_part`, its content may be read once."""

    def __init__(self, chunks: AsyncIterator[bytes], content_type: bytes) -> None:
        """Raise BadRequest for another content type. `chunks` are those of the body, of any length."""
        found = _BOUNDARY.match(content_type)
        if found is None:
            raise BadRequest(_MALFORMED)
        self._chunks = chunks
        self._delimiter = b"\r\n--" + (found[1] or found[2])
        # The first delimiter may stand at the very beginning.
        self._buffer = bytearray(b"\r\n")
        self._is_in_part = True
        self._parts = 0

    async def next_part(self) -> FormPart | None:
        """Pass over the rest of the current part, and return the head of the next one; None after the last.

        Raise BadRequest if the form is malformed, or ends early.
        """
        async for _ in self.content():
            pass
        while len(self._buffer) < 2:
            await self._receive()
        if self._buffer.startswith(b"--"):
            return None
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise BadRequest(f"The form has more than {_MAX_PARTS} fields. Go back and send fewer.")
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise BadRequest(_MALFORMED)
            await self._receive()
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        self._is_in_part = True
        return _part(head)

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the rest of the current part, in pieces about as long as the chunks."""
        while self._is_in_part:
            at = self._buffer.find(self._delimiter)
            # What might be the beginning of the delimiter stays.
            end = at if at >= 0 else max(0, len(self._buffer) - len(self._delimiter) + 1)
            piece = bytes(self._buffer[:end])
            if at >= 0:
                self._is_in_part = False
                end += len(self._delimiter)
            del self._buffer[:end]
            if piece:
                yield piece
            if self._is_in_part:
                await self._receive()

    async def text(self, *, max_bytes: int) -> str:
        """Return the rest of the current part as text. Raise BadRequest if it is longer, not UTF-8, or has NUL."""
        content = b""
        async for piece in self.content():
            content += piece
            if len(content) > max_bytes:
                raise BadRequest("A field of the form is too long. Go back and shorten it.")
        text = _decoded(content)
        if "\0" in text:
            raise BadRequest("The form contains a NUL character. Go back and remove it.")
        return text.replace("\r\n", "\n")

    async def _receive(self) -> None:
        async for chunk in self._chunks:
            self._buffer += chunk
            return
        raise BadRequest("The form ended early. Go back and send it again.")


def _part(head: bytes) -> FormPart:
    disposition = _DISPOSITION.search(head.replace(b"\r\n", b"\n"))
    if disposition is None:
        raise BadRequest(_MALFORMED)
    words = {name.lower(): _unquoted(value) for name, value in _PARAMETER.findall(disposition[1])}
    if b"name" not in words:
        raise BadRequest(_MALFORMED)
    file_name = words.get(b"filename")
    # Some clients send the whole path.
    return FormPart(words[b"name"], None if file_name is None else re.split(r"[/\\]", file_name)[-1])


def _unquoted(value: bytes) -> str:
    """Return a name; browsers write `%22` for a quote, some other clients a backslash before it."""
    return _decoded(value.replace(b'\\"', b'"').replace(b"%22", b'"'))


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise BadRequest("The form is not valid UTF-8 text. Go back and try again.") from None
