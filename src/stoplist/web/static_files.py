"""`/openapi.json` and `/docs`: what anybody may read, made by the first who asks and kept as long as the server runs.

Source: docs/interface.md section D10.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import msgspec

from stoplist.errors import MethodNotAllowed
from stoplist.slicing import let_others_run
from stoplist.web.api.coding import answer_coding, packed
from stoplist.web.request_context import DOCS_PATH, Headers, Receive, Scope, Send, exchange_of, header_value

OPENAPI_PATH = "/openapi.json"

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


class Published:
    """The ASGI application at the path of one file."""

    def __init__(self, path: str, make: Callable[[], Awaitable[File]]) -> None:
        self._path, self._make = path, make
        self._file: File | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange_of(scope).route = self._path
        _check_method(scope)
        async with self._making:
            self._file = self._file or await self._make()
        await _answer(self._file, scope["headers"], send)


def description(base_url: str) -> Published:
    """The OpenAPI document, as a file to download."""

    async def make() -> File:
        openapi = await _loaded("stoplist.web.reference.openapi")
        name = b'attachment; filename="stoplist-openapi.json"'
        return _file(openapi.encoded(base_url), b"application/json", (b"content-disposition", name))

    return Published(OPENAPI_PATH, make)


def reference(base_url: str) -> Published:
    """The page for people."""

    async def make() -> File:
        openapi, page = await _loaded("stoplist.web.reference.openapi"), await _loaded("stoplist.web.reference.page")
        made = await page.make_page(openapi.document(base_url))
        policy = (b"content-security-policy", made.content_security_policy.encode())
        return _file(made.html, b"text/html; charset=utf-8", policy)

    return Published(DOCS_PATH, make)


class Asset:
    """A file that a page is made with; its path changes with it, so that a browser may keep it for good."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self._file = _file(body, content_type.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange_of(scope).route = "assets"
        _check_method(scope)
        await _answer(self._file, scope["headers"], send, kept=b"public, max-age=31536000, immutable")


async def _loaded(module: str) -> Any:
    """A module for the first who asks: neither schemas nor templates are anything that a server needs to start."""
    loaded = import_module(module)
    await let_others_run()
    return loaded


def _check_method(scope: Scope) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD")


def _file(body: bytes, content_type: bytes, *headers: tuple[bytes, bytes]) -> File:
    # A weak tag: it stands for the same text in every coding.
    etag = b'W/"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
    return File({"identity": body}, [(b"content-type", content_type), *headers], etag)


async def _answer(file: File, asked: Headers, send: Send, *, kept: bytes = _ASKED_ANEW) -> None:
    headers = [*_HEADERS, (b"cache-control", kept), (b"etag", file.etag)]
    if _holds(header_value(asked, b"if-none-match"), file.etag):
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    coding = answer_coding(header_value(asked, b"accept-encoding"))
    if coding not in file.codings:
        file.codings[coding] = await packed(file.codings["identity"], coding)
    if coding != "identity":
        headers.append((b"content-encoding", coding.encode()))
    body = file.codings[coding]
    headers += [*file.headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _holds(if_none_match: bytes, etag: bytes) -> bool:
    """Whether the client has this already; strong and weak tags compare alike (RFC 9110 section 13.1.2)."""
    known = {one.strip().removeprefix(b"W/") for one in if_none_match.split(b",")}
    return b"*" in known or etag.removeprefix(b"W/") in known
