"""Files that anybody may read, kept in memory: made once on first use, or known from the start.

Source: docs/interface.md section D10.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from stoplist.errors import MethodNotAllowed
from stoplist.web.api.coding import answer_coding, compress
from stoplist.web.request_context import Headers, Receive, Scope, Send, header_value, request_context_of

# Kept by a browser, and asked for all the same: after an upgrade nobody reads the old one.
_ASKED_ANEW = b"no-cache"
_HEADERS: Headers = [
    (b"vary", b"accept-encoding"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class File(msgspec.Struct):
    """A body with its own headers; `codings` are those in which it was asked for so far, `identity` the first."""

    codings: dict[str, bytes]
    headers: Headers
    etag: bytes


class OnDemandFile:
    """The ASGI application at the path of one file."""

    def __init__(self, path: str, make: Callable[[], Awaitable[File]]) -> None:
        self._path, self._make = path, make
        self._file: File | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_context_of(scope).route = self._path
        _check_method(scope)
        async with self._making:
            self._file = self._file or await self._make()
        await _answer(self._file, scope["headers"], send)


class ImmutableFile:
    """A file that a page is made with; its path changes with it, so that a browser may keep it for good."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self._file = make_file(body, content_type.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_context_of(scope).route = "assets"
        _check_method(scope)
        await _answer(self._file, scope["headers"], send, kept=b"public, max-age=31536000, immutable")


def _check_method(scope: Scope) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD")


def make_file(body: bytes, content_type: bytes, *headers: tuple[bytes, bytes]) -> File:
    # A weak tag: it stands for the same text in every coding.
    etag = b'W/"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
    return File({"identity": body}, [(b"content-type", content_type), *headers], etag)


async def _answer(make_file: File, asked: Headers, send: Send, *, kept: bytes = _ASKED_ANEW) -> None:
    headers = [*_HEADERS, (b"cache-control", kept), (b"etag", make_file.etag)]
    if _holds(header_value(asked, b"if-none-match"), make_file.etag):
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    coding = answer_coding(header_value(asked, b"accept-encoding"))
    if coding not in make_file.codings:
        make_file.codings[coding] = await compress(make_file.codings["identity"], coding)
    if coding != "identity":
        headers.append((b"content-encoding", coding.encode()))
    body = make_file.codings[coding]
    headers += [*make_file.headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _holds(if_none_match: bytes, etag: bytes) -> bool:
    """Whether the client has this already; strong and weak tags compare alike (RFC 9110 section 13.1.2)."""
    known = {one.strip().removeprefix(b"W/") for one in if_none_match.split(b",")}
    return b"*" in known or etag.removeprefix(b"W/") in known
