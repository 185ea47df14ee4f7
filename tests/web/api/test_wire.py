"""Submissions over a real socket whose bodies are not what their heads say: refused, and the server is unharmed.

The bytes of HTTP in general are in tests/server/test_http_protocol.py.
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
from stoplist.server.http_protocol import Bounds
from stoplist.web.api import unsubscribe
from stoplist.web.body import read_body
from tests.builders import contents, execute, make_key, make_organization, make_token, migrated
from tests.fakes import FakeClock
from tests.server.serving import Answer, Connection, Running, on_uvloop, serving
from tests.web.api.partner import FEED_TABLES, NOTHING
from tests.web.application import Application

BODY = json.dumps({"items": [{"address": "ann@x.org"}]}).encode()
MIB = 1 << 20


class Server:
    """A server over an empty database that believes its one client to come over HTTPS; and that client's token."""

    def __init__(self, running: Running, database: Database, token: str) -> None:
        self.running, self.database, self.token = running, database, token

    def head(self, *headers: str) -> bytes:
        """Of a submission; `headers` say how its body is framed."""
        lines = [
            "POST /api/v1/unsubscribe/email HTTP/1.1",
            "Host: x",
            "X-Forwarded-Proto: https",
            f"Authorization: Bearer {self.token}",
            "Content-Type: application/json",
            *headers,
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    async def sent(self, *pieces: bytes) -> Connection:
        connection = await self.running.connect()
        await connection.send_all(pieces)
        return connection

    async def check_refused(self, connection: Connection, text: str) -> Answer:
        """400 in the envelope of the API, and nothing is stored."""
        answer = await connection.answer()
        assert (answer.status, answer.json()["error"]) == (400, "bad_request")
        assert text in answer.json()["message"] == answer.json()["error_description"]
        assert len(answer.headers["x-request-id"]) == 24
        assert await contents(self.database, *FEED_TABLES) == NOTHING
        return answer

    async def check_unharmed(self) -> None:
        """What is right is still accepted, whole; and nothing else was before."""
        # In one piece: where deadlines are short, a busy machine would let one pass between two.
        connection = await self.sent(self.head(f"Content-Length: {len(BODY)}") + BODY)
        answer = await connection.answer()
        assert (answer.status, answer.json()["created"]) == (200, 1)


@asynccontextmanager
async def served(url: str, bounds: Bounds | None = None) -> AsyncIterator[Server]:
    clock = FakeClock()
    async with migrated(url) as database:
        await make_organization(database, clock, default_group="Newsletter")
        pair = await make_token(database, clock, await make_key(database, clock))
        app = Application(asyncio.run, database, clock, trusted_proxies=(ip_network("127.0.0.1/32"),))
        async with serving(app._app, bounds=bounds) as running:
            server = Server(running, database, pair.access_token)
            yield server
            await server.check_unharmed()


Test = Callable[[Server], Awaitable[None]]


def over_a_socket(test: Test) -> Callable[[str], None]:
    """A test whose body is a coroutine and gets a server, which must be unharmed in the end."""

    @functools.wraps(test)
    def body(sqlite_url: str) -> None:
        async def main() -> None:
            async with served(sqlite_url) as server:
                await test(server)

        on_uvloop(main())

    del body.__wrapped__  # pytest is to see the fixture that this one asks for
    return body


@over_a_socket
async def test_a_body_shorter_than_announced_is_nothing(server: Server) -> None:
    """The client hangs up in the middle, also where all of the JSON had come: nobody is answered, nothing is stored."""
    for body in (BODY[:-3], BODY, b""):
        connection = await server.sent(server.head(f"Content-Length: {len(BODY) + 1}"), body)
        connection.writer.write_eof()
        assert await connection.is_closed()
        assert await contents(server.database, *FEED_TABLES) == NOTHING


@over_a_socket
async def test_a_body_longer_than_announced_is_cut(server: Server) -> None:
    """What is behind it is no part of it: the JSON is not whole, and the rest is no request."""
    connection = await server.sent(server.head(f"Content-Length: {len(BODY) - 3}"), BODY)
    await server.check_refused(connection, "not JSON")
    assert b"HTTP/1.1 200" not in await connection.rest()


@over_a_socket
async def test_a_length_that_is_none_is_refused(server: Server) -> None:
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
        connection = await server.sent(server.head(*headers), BODY)
        await server.check_refused(connection, "")
        assert (await connection.rest()).count(b"HTTP/1.1 200") == 0


@over_a_socket
async def test_no_length_is_no_body(server: Server) -> None:
    """RFC 9112 section 6.3."""
    connection = await server.sent(server.head())
    await server.check_refused(connection, "not JSON")


@over_a_socket
async def test_a_body_that_is_announced_too_large_is_refused_at_once(server: Server) -> None:
    """Before any of it has come; a client that asks first is not told to go on."""
    for expect in ([], ["Expect: 100-continue"]):
        connection = await server.sent(server.head(f"Content-Length: {8 * MIB + 1}", *expect))
        await server.check_refused(connection, "larger than 8 MiB")


@over_a_socket
async def test_chunks_without_end_are_refused_at_eight_mib(server: Server) -> None:
    """Nobody waits for the end of it."""
    chunk = b"%x\r\n%s\r\n" % (MIB, b" " * MIB)
    connection = await server.sent(server.head("Transfer-Encoding: chunked"), *[chunk] * 9)
    await server.check_refused(connection, "larger than 8 MiB")


@over_a_socket
async def test_chunks_that_are_cut_off_are_nothing(server: Server) -> None:
    """Without the last one the body is not whole, though the JSON is; a chunk that is none ends it too."""
    chunk = b"%x\r\n%s\r\n" % (len(BODY), BODY)
    head = server.head("Transfer-Encoding: chunked")
    connection = await server.sent(head, chunk)
    connection.writer.write_eof()
    assert await connection.is_closed()
    await server.check_refused(await server.sent(head, chunk, b"xyz\r\n"), "not well-formed HTTP")


@over_a_socket
async def test_a_body_may_come_in_any_pieces(server: Server) -> None:
    """Byte by byte, in chunks, packed: all of it counts."""
    packed = gzip.compress(BODY)
    pieces = [packed[at : at + 1] for at in range(len(packed))]
    plain = server.head(f"Content-Length: {len(packed)}", "Content-Encoding: gzip")
    chunked = server.head("Transfer-Encoding: chunked", "Content-Encoding: gzip")
    chunks = [*(b"1\r\n%s\r\n" % piece for piece in pieces), b"0\r\n\r\n"]
    answers: list[Any] = [
        (await (await server.sent(plain, *pieces)).answer()).json(),
        (await (await server.sent(chunked, *chunks)).answer()).json(),
    ]
    assert [(answer["created"], answer["unchanged"]) for answer in answers] == [(1, 0), (0, 1)]
    await forget(server.database)


async def forget(database: Database) -> None:
    """The test has stored something: for the last look it is taken away again."""
    for table in FEED_TABLES:
        await execute(database, f"DELETE FROM {table}")  # noqa: S608


@pytest.mark.parametrize("deadline", ["the body's", "the connection's"])
def test_a_body_that_trickles_has_no_more_time(sqlite_url: str, monkeypatch: pytest.MonkeyPatch, deadline: str) -> None:
    """A byte every now and then moves neither deadline; what had come of it is nothing."""
    is_bodys = deadline == "the body's"
    if is_bodys:
        monkeypatch.setattr(unsubscribe, "read_body", functools.partial(read_body, deadline_s=0.2))
    bounds = Bounds() if is_bodys else Bounds(request_s=0.2, sweep_s=0.02)

    async def main() -> None:
        async with served(sqlite_url, bounds) as server:
            connection = await server.sent(server.head("Content-Length: 1000000"), BODY)
            refused = asyncio.ensure_future(server.check_refused(connection, "did not arrive within 0.2 seconds"))
            while not refused.done():
                await connection.send(b" ")
                await asyncio.wait([refused], timeout=0.02)
            await refused

    on_uvloop(main())


@over_a_socket
async def test_one_key_cannot_fill_the_memory(server: Server) -> None:
    """Of what it has on its way 64 MiB are taken, whatever the number of requests; the one beyond is refused."""
    head = server.head(f"Content-Length: {8 * MIB}")
    connections = [await server.sent(head, b" " * (8 * MIB - MIB // 16)) for _ in range(8)]
    connections.append(await server.sent(head, b" " * MIB))
    answers = [asyncio.ensure_future(connection.answer()) for connection in connections]
    answered, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    for answer in waiting:
        answer.cancel()
    (refused,) = (answer.result() for answer in answered)
    assert (refused.status, refused.json()["error"], refused.headers["retry-after"]) == (429, "rate_limited", "1")
    assert "64 MiB" in refused.json()["message"]
