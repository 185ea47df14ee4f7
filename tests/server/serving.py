"""A real server on a free port of 127.0.0.1, and a client that sends raw bytes."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import uvloop

from stoplist.server.bounds import Bounds
from stoplist.server.http_server import serve_http
from tests.constants import PATIENCE_S
from tests.deployment import run_by

P = ParamSpec("P")
Scope = dict[str, Any]


class WireAnswer(NamedTuple):
    """One answer as it came over the wire; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """A client connection that sends exactly the given bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_all(self, pieces: Iterable[bytes]) -> None:
        """Send each piece in a packet of its own, as far as the system allows."""
        for piece in pieces:
            await self.send(piece)
            await asyncio.sleep(0)

    async def answer(self) -> WireAnswer:
        """Read the next answer, which must have a `Content-Length` or no body."""
        async with asyncio.timeout(PATIENCE_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:-2])}
            assert len(headers) == len(lines) - 3, "no header comes twice"
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return WireAnswer(int(lines[0].split(" ")[1]), headers, body)

    async def rest(self) -> bytes:
        """Read until the server ends the connection, which it must do soon."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def is_closed(self) -> bool:
        """Return whether the server ends the connection without another byte."""
        return await self.rest() == b""

    def close(self) -> None:
        self.writer.close()


class Running:
    """A server that accepts connections."""

    def __init__(self, port: int, stop: asyncio.Event, force: asyncio.Event) -> None:
        self.port, self.stop, self.force = port, stop, force
        self.own_answers: list[tuple[str, int]] = []
        self.done: asyncio.Task[None]
        self._open: list[RawConnection] = []

    async def connect(self, tls: ssl.SSLContext | None = None) -> RawConnection:
        name = "localhost" if tls else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, server_hostname=name)
        connection = RawConnection(reader, writer)
        self._open.append(connection)
        return connection

    async def ask(self, data: bytes) -> WireAnswer:
        """Send these bytes on a new connection, and return the answer."""
        connection = await self.connect()
        await connection.send(data)
        return await connection.answer()

    async def ended(self) -> None:
        """Wait until `serve_http` returns, which it must do soon."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([self.done])
        if not self.done.cancelled():
            self.done.result()

    def close_connections(self) -> None:
        for connection in self._open:
            connection.close()


@asynccontextmanager
async def serving(
    app: Callable[..., Any],
    *,
    tls: ssl.SSLContext | None = None,
    drain_s: float = 600.0,
    notice_s: float = 0.0,
    on_stop: Callable[[], None] = lambda: None,
    bounds: Bounds | None = None,
    is_https_only: bool = False,
) -> AsyncIterator[Running]:
    """Serve `app` within the context, and force the stop at its end."""

    def notice() -> float:
        on_stop()
        return notice_s

    started: asyncio.Future[list[tuple[str, int]]] = asyncio.get_running_loop().create_future()
    running = Running(0, asyncio.Event(), asyncio.Event())
    running.done = asyncio.create_task(
        serve_http(
            app,
            host="127.0.0.1",
            port=0,
            tls=tls,
            drain_s=drain_s,
            stop=running.stop,
            force=running.force,
            notice_s=notice,
            on_started=started.set_result,
            on_own_answer=lambda request_id, status, _: running.own_answers.append((request_id, status)),
            bounds=bounds,
            is_https_only=is_https_only,
        )
    )
    both: list[asyncio.Future[Any]] = [started, running.done]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if running.done.done():
        await running.done
    running.port = started.result()[0][1]
    try:
        yield running
    finally:
        running.close_connections()
        running.stop.set()
        running.force.set()
        await running.ended()


def trusting(folder: Path) -> ssl.SSLContext:
    """Return a client context that trusts only the authority of this folder."""
    return ssl.create_default_context(cafile=folder / "ca.pem")


def on_uvloop(body: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine on the event loop that the product uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body)


def in_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate a test that is a coroutine: it runs on the event loop that the product uses."""
    return run_by(on_uvloop, test)


async def respond(send: Callable[..., Any], body: bytes, *, status: int = 200) -> None:
    """Send a complete answer as an ASGI application."""
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answer `hello` to every request: an ASGI application."""
    await respond(send, b"hello")
