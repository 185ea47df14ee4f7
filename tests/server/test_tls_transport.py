"""TLS over a plain transport: everything arrives as over uvloop's own, and nothing is kept for silent clients."""

import hashlib
import random
import ssl
from pathlib import Path
from typing import Any

import pytest

from stoplist.clock import Clock
from stoplist.server.bounds import Bounds
from stoplist.server.tls import ensure_development_certificate, server_context
from stoplist.web.body import read_body
from tests.server.serving import RawConnection, Running, in_uvloop, respond, serving, trusting

pytestmark = pytest.mark.interpreter

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BIG = random.Random(1).randbytes(3_000_000)  # noqa: S311


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer a GET with a big body, and anything else with the digest of its body."""
    if scope["method"] == "GET":
        await respond(send, BIG if scope["path"] == "/big" else b"small")
        return
    body = await read_body(receive, scope["headers"], max_bytes=10_000_000)
    await respond(send, hashlib.sha256(body).hexdigest().encode())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return ensure_development_certificate(tmp_path_factory.mktemp("tls"), [], Clock().now_ms())


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return server_context(*certificate)


@pytest.fixture
def client(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return trusting(certificate[0].parent)


class PiecewiseClient:
    """A client whose encrypted bytes are sent and received in pieces of any size."""

    def __init__(self, connection: RawConnection, context: ssl.SSLContext, piece_bytes: int) -> None:
        self._connection, self._piece_bytes = connection, piece_bytes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send()
                await self._receive()
            else:
                await self._send()
                return

    async def send(self, data: bytes) -> None:
        while data:
            data = data[self._tls.write(data) :]
        await self._send()

    async def received(self, end: bytes) -> bytes:
        """Receive until the data ends so, or until the server has closed its side with an alert."""
        data = b""
        while not end or not data.endswith(end):
            try:
                part = self._tls.read()
            except ssl.SSLWantReadError:
                await self._receive()
                continue
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                break
            data += part
        return data

    async def close(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        await self._send()

    async def _send(self) -> None:
        data = self._outgoing.read()
        pieces = [data[at : at + self._piece_bytes] for at in range(0, len(data), self._piece_bytes)]
        await self._connection.send_all(pieces)

    async def _receive(self) -> None:
        data = await self._connection.reader.read(self._piece_bytes)
        assert data, "the server ended the connection without an alert"
        self._incoming.write(data)


async def opened(running: Running, context: ssl.SSLContext, piece_bytes: int = 65_536) -> PiecewiseClient:
    client = PiecewiseClient(await running.connect(), context, piece_bytes)
    await client.shake_hands()
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("piece_bytes", [1, 7, 5_000])
@in_uvloop
async def test_requests_in_pieces_are_answered(
    server: ssl.SSLContext, client: ssl.SSLContext, version: ssl.TLSVersion, piece_bytes: int
) -> None:
    client.minimum_version = client.maximum_version = version
    async with serving(app, tls=server) as running:
        connection = await opened(running, client, piece_bytes)
        for _ in range(2):
            await connection.send(GET)
            assert (await connection.received(b"small")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("piece_bytes", [5_000, 200_000])
@in_uvloop
async def test_large_bodies_and_answers_are_whole(
    server: ssl.SSLContext, client: ssl.SSLContext, piece_bytes: int
) -> None:
    """Reading pauses while the application has not read what was received; writing, while the client has not."""
    async with serving(app, tls=server) as running:
        connection = await opened(running, client, piece_bytes)
        await connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BIG), BIG))
        assert await connection.received(hashlib.sha256(BIG).hexdigest().encode())
        await connection.send(GET.replace(b"/ ", b"/big ", 1))
        assert (await connection.received(BIG[-100:])).endswith(BIG)


@in_uvloop
async def test_requests_received_while_reading_paused_are_answered(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    async with serving(app, tls=server) as running:
        connection = await opened(running, client)
        await connection.send(GET * 20)
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 20:
            answers += await connection.received(b"small")


@in_uvloop
async def test_the_end_of_an_answer_is_confirmed(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """The alert `close_notify` tells a client that nobody cut the answer off."""
    async with serving(app, tls=server) as running:
        connection = await opened(running, client)
        await connection.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await connection.received(b"")).endswith(b"small")


@in_uvloop
async def test_a_client_that_is_still_sending_can_read_its_refusal(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    async with serving(app, tls=server) as running:
        connection = await opened(running, client)
        await connection.send(b"no HTTP\r\n\r\n" + b"x" * 200_000)
        assert (await connection.received(b"")).startswith(b"HTTP/1.1 400")
        await connection.send(b"x" * 200_000)


@in_uvloop
async def test_a_client_that_closes_its_side_is_gone(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    async with serving(app, tls=server) as running:
        connection = await opened(running, client)
        await connection.send(GET)
        await connection.received(b"small")
        await connection.close()
        assert await connection.received(b"") == b""


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
@in_uvloop
async def test_a_handshake_has_a_deadline(server: ssl.SSLContext, sent: bytes) -> None:
    """The deadline is its own, and shorter than that of a head."""
    async with serving(app, tls=server, bounds=Bounds(handshake_s=0.1, sweep_s=0.02)) as running:
        connection = await running.connect()
        await connection.send(sent)
        assert await connection.is_closed()


@in_uvloop
async def test_what_is_no_tls_ends_the_connection(server: ssl.SSLContext) -> None:
    async with serving(app, tls=server) as running:
        connection = await running.connect()
        await connection.send(GET)
        assert await connection.is_closed()


@in_uvloop
async def test_connections_count_before_their_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """The longest idle makes room, whether its handshake is complete or not."""
    async with serving(app, tls=server, bounds=Bounds(connections_per_source=3)) as running:
        silent = [await running.connect() for _ in range(3)]
        connection = await opened(running, client)
        assert await silent[0].is_closed()
        await connection.send(GET)
        assert await connection.received(b"small")
        assert not silent[2].reader.at_eof()
