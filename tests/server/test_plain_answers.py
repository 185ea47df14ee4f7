"""The fast path of a plain answer: it writes the same bytes as uvicorn, and every revocation counts on it."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_network
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple, cast
from unittest import mock

import pytest
import uvloop
from uvicorn.config import Config

from stoplist.server import request_cycle
from stoplist.server.bounds import Bounds
from stoplist.server.http_protocol import WireProtocol
from stoplist.server.request_cycle import Cycle
from stoplist.server.wire_state import WireState
from stoplist.web.request_context import WHOLE_ANSWER
from tests.builders import make_key, make_organization, make_token, migrated
from tests.fakes import FakeClock
from tests.server.serving import on_uvloop, serving
from tests.web.application import Application

pytestmark = pytest.mark.interpreter


class Sent(NamedTuple):
    """The messages that the application sends for one request."""

    status: int
    headers: list[tuple[bytes, bytes]]
    parts: list[bytes]
    is_whole: bool = False  # sent as one message of our extension


class Transport(asyncio.Transport):
    """Keeps what is written, in order, and whether the connection was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.written.append(b"<closed>")

    def write_eof(self) -> None:
        self.written.append(b"<half closed>")

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return b"<closed>" in self.written

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


async def connection_bytes(pieces: list[bytes], answers: list[Sent], *, is_lost: bool = False) -> bytes:
    """Return everything that one connection writes when it receives these pieces, and the application sends these.

    If it `is_lost`, the client disconnects before the last answers.
    """
    left = iter(answers)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        status, headers, parts, is_whole = next(left)
        if scope["method"] == "POST":
            await receive()
        if is_whole:
            await send({"type": WHOLE_ANSWER, "status": status, "headers": headers, "body": b"".join(parts)})
            return
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for number, part in enumerate(parts, 1):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})

    config = Config(app, http="httptools", proxy_headers=False, access_log=False, log_config=None)
    config.load()
    state = WireState(Bounds(), now_s=0.0, bad_request_code=lambda _: "bad_request", on_own_answer=lambda *_: None)
    state.default_headers = [(b"date", b"Mon, 23 Nov 2026 12:00:00 GMT")]
    transport, protocol = Transport(), WireProtocol(config, state, {})
    protocol.connection_made(transport)
    for piece in pieces:
        protocol.data_received(piece)
        await asyncio.sleep(0)
    if is_lost:
        protocol.connection_lost(None)
    while state.tasks:
        await asyncio.sleep(0)
        if transport.is_closing():
            protocol.connection_lost(None)
    return b"".join(transport.written)


VALUES = (b"application/json", b"no-store", b"", b"a\tb", b"\xc3\xa9", b"bad\r\nSet-Cookie: x=1", b"\0")
NAMES = (
    b"content-type",
    b"cache-control",
    b"x-request-id",
    b"vary",
    b"X-Upper",
    b"bad name",
    b"ratelimit",
    b"connection",
)


def an_answer(random: Random) -> Sent:
    """Return an answer: mostly of its declared length, sometimes with another length, in chunks, or closing."""
    parts = [random.randbytes(random.randrange(20)) for _ in range(random.randint(1, 3))]
    headers = [
        (random.choice(NAMES), random.choice((*VALUES, random.randbytes(random.randrange(12)))))
        for _ in range(random.randrange(5))
    ]
    length = (b"content-length", b"%d" % len(b"".join(parts)))
    framing: list[list[tuple[bytes, bytes]]] = [
        [],
        [(b"content-length", b"7")],
        [length, length],
        [(b"transfer-encoding", b"chunked")],
        [length, (b"transfer-encoding", b"chunked")],
        [length, (b"connection", b"close")],
    ]
    at = random.randint(0, len(headers))
    headers[at:at] = random.choice([*framing, *[[length]] * 5])
    return Sent(random.choice((200, 200, 204, 304, 401, 429, 503)), headers, parts, random.random() < 0.5)


def a_request(random: Random) -> bytes:
    """Return a whole request, with and without a body, of both versions, that may want its connection closed."""
    version = random.choice(("1.1", "1.1", "1.1", "1.0"))
    fields = random.choice(("", "", "Connection: close\r\n", "Connection: keep-alive\r\n", "Accept: */*\r\n"))
    target = random.choice(("/", "/api/v1/unsubscribe/email?address=a%40b.example", "/oauth/token"))
    if random.random() < 0.5:
        return f"{random.choice(('GET', 'HEAD'))} {target} HTTP/{version}\r\nHost: x\r\n{fields}\r\n".encode()
    expect = random.choice(("", "", "Expect: 100-continue\r\n"))
    return f"POST {target} HTTP/{version}\r\nHost: x\r\n{fields}{expect}Content-Length: 3\r\n\r\nabc".encode()


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    """Yield a loop for many short connections. Ids of requests, which answers may contain, are one and the same."""
    same_id = mock.patch.object(request_cycle, "new_request_id", return_value="req_1")
    with same_id, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(100, 5_000), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_a_plain_answer_is_the_one_that_uvicorn_writes(loop: asyncio.Runner, seeds: range) -> None:
    """One to three requests in a row, cut anywhere: the same bytes, and the connection ends at the same place."""
    for seed in seeds:
        random = Random(seed)  # noqa: S311
        count = random.randint(1, 3)
        stream = b"".join(a_request(random) for _ in range(count))
        cuts = sorted({0, len(stream), *(random.randint(0, len(stream)) for _ in range(random.randrange(4)))})
        pieces = [stream[start:end] for start, end in pairwise(cuts)]
        answers = [an_answer(random) for _ in range(count)]
        is_lost = random.random() < 0.5
        fast = loop.run(connection_bytes(pieces, answers, is_lost=is_lost))
        with mock.patch.object(Cycle, "_write_plain", return_value=False):
            general = loop.run(connection_bytes(pieces, answers, is_lost=is_lost))
        assert fast == general, seed


def test_most_answers_are_written_by_the_fast_path(loop: asyncio.Runner) -> None:
    """Otherwise the comparison above would compare the general path with itself."""
    plain = Sent(200, [(b"content-type", b"application/json"), (b"content-length", b"2")], [b"{}"])
    with mock.patch.object(Cycle, "_write_plain", autospec=True, side_effect=Cycle._write_plain) as written:
        loop.run(connection_bytes([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], [plain]))
        cycle = cast("Cycle", written.call_args.args[0])
    assert cycle.response_complete
    assert cycle.chunked_encoding is None, "uvicorn's way would have set it"


def test_a_revocation_by_another_process_holds_for_the_next_request(sqlite_url: str) -> None:
    """It holds on the same connection, while look-ups of other connections keep snapshots open in every turn."""

    async def main() -> None:
        clock = FakeClock()
        async with migrated(sqlite_url) as database:
            await make_organization(database, clock, "acme")
            keys = [await make_key(database, clock, "acme", api_per_minute=10**6) for _ in range(2)]
            mine, others = [(await make_token(database, clock, key)).access_token for key in keys]
            app = Application(asyncio.run, database, clock, trusted_proxies=(ip_network("127.0.0.1/32"),))
            with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as elsewhere:
                await revoke_again_and_again(app, elsewhere, keys[0].credential.client_id, mine, others)

    async def revoke_again_and_again(
        app: Application, elsewhere: sqlite3.Connection, client_id: str, mine: str, others: str
    ) -> None:
        async with serving(app._app) as server:
            stop = asyncio.Event()
            busy = [asyncio.create_task(look_up_until(stop, await server.connect(), others)) for _ in range(8)]
            connection = await server.connect()
            for number in range(200):
                is_active = number % 2
                elsewhere.execute("UPDATE clients SET is_active = ? WHERE client_id = ?", (is_active, client_id))
                await connection.send(look_up(mine))
                assert (await connection.answer()).status == (200 if is_active else 401)
            stop.set()
            await asyncio.gather(*busy)

    async def look_up_until(stop: asyncio.Event, connection: Any, token: str) -> None:
        while not stop.is_set():
            await connection.send(look_up(token))
            assert (await connection.answer()).status == 200

    def look_up(token: str) -> bytes:
        fields = f"Host: localhost\r\nX-Forwarded-Proto: https\r\nAuthorization: Bearer {token}\r\n"
        return f"GET /api/v1/unsubscribe/email?address=a@b.example HTTP/1.1\r\n{fields}\r\n".encode()

    on_uvloop(main())
