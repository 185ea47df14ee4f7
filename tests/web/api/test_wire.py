"""Submissions over a real socket with malformed, partial or slow bodies; the server keeps working.

HTTP in general is tested in tests/server/test_http_protocol.py.
"""

import asyncio
import functools
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from stoplist.db import Database
from stoplist.server.bounds import Bounds
from tests.builders import contents, execute, make_key, make_organization, make_token, migrated
from tests.constants import MIB
from tests.fakes import FakeClock
from tests.server.serving import RawConnection, Running, WireAnswer, in_uvloop, on_uvloop, serving
from tests.web.api.partner import FEED_TABLES, NOTHING
from tests.web.application import Application

pytestmark = pytest.mark.interpreter

BODY = json.dumps({"items": [{"address": "ann@x.org"}]}).encode()


class WireServer:
    """A server over an empty database behind a trusted proxy, and the token of its one client."""

    def __init__(self, running: Running, database: Database, token: str) -> None:
        self.running, self.database, self.token = running, database, token

    def head(self, *headers: str) -> bytes:
        """Return the head of a submission; `headers` frame the body."""
        lines = [
            "POST /api/v1/unsubscribe/email HTTP/1.1",
            "Host: x",
            "X-Forwarded-Proto: https",
            f"Authorization: Bearer {self.token}",
            "Content-Type: application/json",
            *headers,
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    async def send(self, *pieces: bytes) -> RawConnection:
        connection = await self.running.connect()
        await connection.send_all(pieces)
        return connection

    async def check_refused(self, connection: RawConnection, text: str) -> WireAnswer:
        """Check a 400 in the envelope of the API, and that nothing is stored."""
        answer = await connection.answer()
        assert (answer.status, answer.json()["error"]) == (400, "bad_request")
        assert text in answer.json()["message"] == answer.json()["error_description"]
        assert len(answer.headers["x-request-id"]) == 24
        assert await contents(self.database, *FEED_TABLES) == NOTHING
        return answer

    async def check_still_works(self) -> None:
        """Check that a valid submission is accepted, and is the first one stored."""
        # In one piece: with short deadlines, a busy machine might miss one between two pieces.
        connection = await self.send(self.head(f"Content-Length: {len(BODY)}") + BODY)
        answer = await connection.answer()
        assert (answer.status, answer.json()["created"]) == (200, 1)


@asynccontextmanager
async def served(url: str, bounds: Bounds | None = None) -> AsyncIterator[WireServer]:
    clock = FakeClock()
    async with migrated(url) as database:
        await make_organization(database, clock, default_group="Newsletter")
        pair = await make_token(database, clock, await make_key(database, clock))
        app = Application(asyncio.run, database, clock, trusted_proxies=(ip_network("127.0.0.1/32"),))
        async with serving(app._app, bounds=bounds) as running:
            server = WireServer(running, database, pair.access_token)
            yield server
            await server.check_still_works()


Test = Callable[[WireServer], Awaitable[None]]


def over_a_socket(test: Test) -> Callable[[str], None]:
    """Turn a coroutine test that takes a server into a pytest test; the server must still work at the end."""

    @functools.wraps(test)
    def body(sqlite_url: str) -> None:
        async def main() -> None:
            async with served(sqlite_url) as server:
                await test(server)

        on_uvloop(main())

    del body.__wrapped__  # so that pytest sees the fixture of this function
    return body


@over_a_socket
async def test_a_body_shorter_than_announced_stores_nothing(server: WireServer) -> None:
    """The client disconnects, also after all of the JSON has arrived: no answer is sent."""
    for body in (BODY[:-3], BODY, b""):
        connection = await server.send(server.head(f"Content-Length: {len(BODY) + 1}"), body)
        connection.writer.write_eof()
        assert await connection.is_closed()
        assert await contents(server.database, *FEED_TABLES) == NOTHING


@over_a_socket
async def test_a_body_longer_than_announced_is_cut(server: WireServer) -> None:
    """The rest is no part of it: the JSON is incomplete, and the rest is no request."""
    connection = await server.send(server.head(f"Content-Length: {len(BODY) - 3}"), BODY)
    await server.check_refused(connection, "not JSON")
    assert b"HTTP/1.1 200" not in await connection.rest()


@over_a_socket
async def test_an_invalid_length_is_refused(server: WireServer) -> None:
    """Negative, of letters, twice, or beside chunks (RFC 9112 section 6.3)."""
    number = str(len(BODY))
    for headers in (
        ["Content-Length: -1"],
        [f"Content-Length: {number}x"],
        [f"Content-Length: {number}", f"Content-Length: {len(BODY) - 1}"],
        [f"Content-Length: {number}", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: gzip"],
        ["Content-Length: " + "9" * 30],
    ):
        connection = await server.send(server.head(*headers), BODY)
        await server.check_refused(connection, "")
        assert (await connection.rest()).count(b"HTTP/1.1 200") == 0


@over_a_socket
async def test_without_a_length_there_is_no_body(server: WireServer) -> None:
    """RFC 9112 section 6.3."""
    connection = await server.send(server.head())
    await server.check_refused(connection, "not JSON")


@over_a_socket
async def test_a_body_announced_too_large_is_refused_at_once(server: WireServer) -> None:
    """The refusal precedes any of it; a client that expects 100 Continue gets it instead."""
    for expect in ([], ["Expect: 100-continue"]):
        connection = await server.send(server.head(f"Content-Length: {8 * MIB + 1}", *expect))
        await server.check_refused(connection, "larger than 8 MiB")


@over_a_socket
async def test_endless_chunks_are_refused_at_eight_mib(server: WireServer) -> None:
    chunk = b"%x\r\n%s\r\n" % (MIB, b" " * MIB)
    connection = await server.send(server.head("Transfer-Encoding: chunked"), *[chunk] * 9)
    await server.check_refused(connection, "larger than 8 MiB")


@over_a_socket
async def test_truncated_chunks_store_nothing(server: WireServer) -> None:
    """A body without its last chunk is incomplete, though the JSON is not; a malformed chunk ends it too."""
    chunk = b"%x\r\n%s\r\n" % (len(BODY), BODY)
    head = server.head("Transfer-Encoding: chunked")
    connection = await server.send(head, chunk)
    connection.writer.write_eof()
    assert await connection.is_closed()
    await server.check_refused(await server.send(head, chunk, b"xyz\r\n"), "not well-formed HTTP")


@over_a_socket
async def test_a_body_may_come_in_any_pieces(server: WireServer) -> None:
    """Byte by byte, in chunks, with gzip."""
    compressed = gzip.compress(BODY)
    pieces = [compressed[at : at + 1] for at in range(len(compressed))]
    plain = server.head(f"Content-Length: {len(compressed)}", "Content-Encoding: gzip")
    chunked = server.head("Transfer-Encoding: chunked", "Content-Encoding: gzip")
    chunks = [*(b"1\r\n%s\r\n" % piece for piece in pieces), b"0\r\n\r\n"]
    answers: list[Any] = [
        (await (await server.send(plain, *pieces)).answer()).json(),
        (await (await server.send(chunked, *chunks)).answer()).json(),
    ]
    assert [(answer["created"], answer["unchanged"]) for answer in answers] == [(1, 0), (0, 1)]
    await clear_feed(server.database)


async def clear_feed(database: Database) -> None:
    """Delete what the test has stored, for `check_still_works`."""
    for table in FEED_TABLES:
        await execute(database, f"DELETE FROM {table}")  # noqa: S608


@in_uvloop
async def test_a_trickling_body_does_not_extend_its_deadline(sqlite_url: str) -> None:
    """Nothing is stored."""
    async with served(sqlite_url, Bounds(request_s=0.2, sweep_s=0.02)) as server:
        connection = await server.send(server.head("Content-Length: 1000000"), BODY)
        refused = asyncio.ensure_future(server.check_refused(connection, "did not arrive within 0.2 seconds"))
        while not refused.done():
            await connection.send(b" ")
            await asyncio.wait([refused], timeout=0.02)
        await refused


@over_a_socket
async def test_one_key_cannot_fill_the_memory(server: WireServer) -> None:
    """A key may send 64 MiB at once, over any number of requests; the request beyond is refused."""
    head = server.head(f"Content-Length: {8 * MIB}")
    connections = [await server.send(head, b" " * (8 * MIB - MIB // 16)) for _ in range(8)]
    connections.append(await server.send(head, b" " * MIB))
    answers = [asyncio.ensure_future(connection.answer()) for connection in connections]
    answered, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    for answer in waiting:
        answer.cancel()
    (refused,) = (answer.result() for answer in answered)
    assert (refused.status, refused.json()["error"], refused.headers["retry-after"]) == (429, "rate_limited", "1")
    assert "64 MiB" in refused.json()["message"]
