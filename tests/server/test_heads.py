"""Request heads that a proxy could read differently are refused (RFC 9112 sections 3.2 and 6.1)."""

from typing import Any

import pytest

from tests.server.serving import in_uvloop, respond, serving

pytestmark = pytest.mark.interpreter

CHUNKS = b"1\r\nx\r\n0\r\n\r\n"
# Answered only if the bytes behind a head are parsed as the next request.
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


async def paths(scope: Any, _receive: Any, send: Any) -> None:
    await respond(send, scope["path"].encode())


def head(first_line: str, *fields: str) -> bytes:
    return "\r\n".join([first_line, *fields, "", ""]).encode()


AMBIGUOUS = {
    "no Host": head("GET / HTTP/1.1"),
    "two Hosts": head("GET / HTTP/1.1", "Host: a", "Host: b"),
    "the same Host twice": head("GET / HTTP/1.1", "Host: a", "host: a"),
    "two Hosts in HTTP/1.0": head("GET / HTTP/1.0", "Host: a", "Host: b"),
    "two Hosts and an Upgrade": head("GET / HTTP/1.1", "Host: a", "Host: b", "Connection: upgrade", "Upgrade: h2c"),
    "no Host and an Upgrade": head("GET / HTTP/1.1", "Connection: upgrade", "Upgrade: h2c"),
    "a coding before chunked": head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: gzip, chunked") + CHUNKS,
    "a coding after chunked": head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked, gzip") + CHUNKS,
    "another coding alone": head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: gzip") + CHUNKS,
    "chunked twice in one": head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked, chunked") + CHUNKS,
    "chunked in two": head("POST / HTTP/1.1", "Host: x", *["Transfer-Encoding: chunked"] * 2) + CHUNKS,
    "two codings": head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked") + CHUNKS,
    "an empty coding": head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding:") + CHUNKS,
    "a length and chunks": head("POST / HTTP/1.1", "Host: x", "Content-Length: 4", "Transfer-Encoding: chunked")
    + CHUNKS,
    "HTTP/0.9 without its name": b"GET /\r\n\r\n",
    "HTTP/0.9 by name": head("GET / HTTP/0.9", "Host: x"),
    "HTTP/2 by name": head("GET / HTTP/2.0", "Host: x"),
}


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS)
@in_uvloop
async def test_an_ambiguous_head_is_refused(request_: bytes) -> None:
    """400; nothing behind it is parsed as another request, and the application is not called."""
    async with serving(paths) as server:
        connection = await server.connect()
        await connection.send(request_ + SMUGGLED)
        answer = await connection.answer()
        assert answer.status == 400
        assert answer.json()["error"] == "bad_request"
        assert answer.headers["connection"] == "close"
        assert await connection.is_closed()
        assert server.own_answers == [(answer.headers["x-request-id"], 400)]


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS)
@in_uvloop
async def test_requests_before_an_ambiguous_head_are_answered(request_: bytes) -> None:
    async with serving(paths) as server:
        connection = await server.connect()
        await connection.send(head("GET /before HTTP/1.1", "Host: x") + request_ + SMUGGLED)
        assert (await connection.answer()).body == b"/before"
        assert b"/smuggled" not in await connection.rest()


PLAIN = {
    "HTTP/1.0 without a Host": head("GET /plain HTTP/1.0"),
    "HTTP/1.0 with one": head("GET /plain HTTP/1.0", "Host: x"),
    "chunks": head("POST /plain HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + CHUNKS,
    "chunks in capitals": head("POST /plain HTTP/1.1", "Host: x", "TRANSFER-ENCODING: Chunked") + CHUNKS,
}


@pytest.mark.parametrize("request_", PLAIN.values(), ids=PLAIN)
@in_uvloop
async def test_an_unambiguous_head_is_answered(request_: bytes) -> None:
    async with serving(paths) as server:
        answer = await server.ask(request_)
        assert (answer.status, answer.body) == (200, b"/plain")
        assert server.own_answers == []
