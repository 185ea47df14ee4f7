"""HTTP/1.1 requests and answers as values, read from and written to streams, for the fault proxy."""

import hashlib
import http
from asyncio import IncompleteReadError, StreamReader
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec

# These belong to one connection, and bodies are passed on whole.
_CONNECTION_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. Header names are in lower case, the body is as it was sent. It holds secrets: no repr."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"

    @property
    def path(self) -> str:
        """Return the path without the query."""
        return urlsplit(self.target).path

    @property
    def grant_type(self) -> str | None:
        """Return the grant type of a token request; None for other requests."""
        return self._field("grant_type")

    @property
    def refresh_token(self) -> str | None:
        """Return a hash that identifies the presented refresh token; None if none is presented."""
        token = self._field("refresh_token")
        return token and hashlib.sha256(token.encode()).hexdigest()

    def _field(self, name: str) -> str | None:
        if self.path != "/oauth/token":
            return None
        return parse_qs(self.body.decode()).get(name, [None])[0]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the server, or one made up by a test."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Reply({self.status}, {len(self.body)} bytes)"


async def read_request(reader: StreamReader) -> Request | None:
    """Read the next request; None if the connection ends first."""
    try:
        start, headers = await _read_head(reader)
    except IncompleteReadError:
        return None
    method, target, _ = start.split(" ")
    body = await _read_body(reader, headers)
    return Request(method=method, target=target, headers=headers, body=body)


async def read_reply(reader: StreamReader, request: Request) -> Reply:
    """Read the answer to the request. Raise IncompleteReadError if the connection ends first."""
    start, headers = await _read_head(reader)
    body = b"" if request.method == "HEAD" else await _read_body(reader, headers)
    return Reply(status=int(start.split(" ")[1]), headers=headers, body=body)


def request_bytes(request: Request, **headers: str) -> bytes:
    """Return the request as bytes, with these extra headers; `_` in their names stands for `-`."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    start = f"{request.method} {request.target} HTTP/1.1"
    has_length = "content-length" in request.headers or bool(request.body)
    return _head(start, {**request.headers, **more}, len(request.body) if has_length else None) + request.body


def reply_bytes(reply: Reply) -> bytes:
    """Return the answer as bytes, with the length of its body."""
    start = f"HTTP/1.1 {reply.status} {http.HTTPStatus(reply.status).phrase}"
    return _head(start, reply.headers, len(reply.body)) + reply.body


async def _read_head(reader: StreamReader) -> tuple[str, dict[str, str]]:
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = (line.partition(":") for line in lines)
    return start, {name.lower(): value.strip() for name, _, value in fields}


async def _read_body(reader: StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body


def _head(start: str, headers: Mapping[str, str], length: int | None) -> bytes:
    kept = {name: value for name, value in headers.items() if name.lower() not in _CONNECTION_HEADERS}
    if length is not None:
        kept["content-length"] = str(length)
    return "\r\n".join([start, *(f"{name}: {value}" for name, value in kept.items()), "", ""]).encode("latin-1")
