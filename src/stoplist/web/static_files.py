"""Public files, kept in memory: created on first use, or known from the start.

Source: docs/interface.md section D10.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from stoplist.errors import MethodNotAllowed
from stoplist.web.api.coding import answer_coding, compress
from stoplist.web.request_context import Headers, Receive, Scope, Send, header_value, request_context_of

# A browser may keep the file but must revalidate it, so that nobody reads an old one after an upgrade.
_REVALIDATE = b"no-cache"
_HEADERS: Headers = [
    (b"vary", b"accept-encoding"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class File(msgspec.Struct):
    """A body with its headers; `codings` holds it as `identity` and in every content coding requested so far."""

    codings: dict[str, bytes]
    headers: Headers
    etag: bytes


class OnDemandFile:
    """The ASGI application for one file, which is created on the first request."""

    def __init__(self, path: str, make: Callable[[], Awaitable[File]]) -> None:
        self._path, self._make = path, make
        self._file: File | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_context_of(scope).route = self._path
        _check_method(scope)
        async with self._lock:
            self._file = self._file or await self._make()
        await _send_file(self._file, scope["headers"], send)


class ImmutableFile:
    """The ASGI application for an asset of a page; its path changes with its content, so browsers may keep it."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self._file = make_file(body, content_type.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_context_of(scope).route = "assets"
        _check_method(scope)
        await _send_file(self._file, scope["headers"], send, cache_control=b"public, max-age=31536000, immutable")


def _check_method(scope: Scope) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD")


def make_file(body: bytes, content_type: bytes, *headers: tuple[bytes, bytes]) -> File:
    """Return a file with these headers and an entity tag."""
    # A weak tag, since it is the same for every content coding.
    etag = b'W/"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
    return File({"identity": body}, [(b"content-type", content_type), *headers], etag)


async def _send_file(file: File, request_headers: Headers, send: Send, *, cache_control: bytes = _REVALIDATE) -> None:
    headers = [*_HEADERS, (b"cache-control", cache_control), (b"etag", file.etag)]
    if _matches(header_value(request_headers, b"if-none-match"), file.etag):
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    coding = answer_coding(header_value(request_headers, b"accept-encoding"))
    if coding not in file.codings:
        file.codings[coding] = await compress(file.codings["identity"], coding)
    if coding != "identity":
        headers.append((b"content-encoding", coding.encode()))
    body = file.codings[coding]
    headers += [*file.headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _matches(if_none_match: bytes, etag: bytes) -> bool:
    """Return whether the client has this tag, by the weak comparison (RFC 9110 section 13.1.2)."""
    tags = {tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")}
    return b"*" in tags or etag.removeprefix(b"W/") in tags
