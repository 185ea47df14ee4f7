"""An HTTPS proxy between a client and `stoplist serve` that does to requests and answers what networks and proxies do.

It runs on an event loop and a thread of its own; tests tell it from theirs what is to go wrong:

    from tests.services.faults import faults
    from tests.services.mishaps import DROP, LOSE, Hold, Reply, is_api, is_refresh

    with faults(server.base_url, server.ca.parent) as between:      # server: tests.e2e.running.Server
        client = Client(between.base_url, ca_file=between.ca, …)    # ca, certificate and key are the server's
        between.next(LOSE, when=is_refresh)                         # the answer to the next refresh is lost
        between.next(Reply(status=503), None, DROP, when=is_api)    # the first and third request of the API from now on
        client.unsubscribe("email", ["ann@example.com"])
        assert between.planned == 0                                 # everything that was to go wrong did
        assert between.presented_twice == []                        # no refresh token came by more than once
        assert [seen.told for seen in between.seen] == [200, 503, …]

A held answer: `held = Hold(); between.next(held, when=is_refresh)`; then, while another thread or process asks,
`held.wait()` returns once the server has answered (and so has committed), and `held.release()` lets the client have it.
"""

import asyncio
import collections
import contextlib
import socket
import ssl
import struct
import threading
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.services.http_messages import Reply, Request, read_reply, read_request, reply_bytes, request_bytes
from tests.services.keeping import end_other_tasks, reserve_port
from tests.services.mishaps import CUT, DROP, LOSE, RESET, Alter, Fault, Hold, Which, is_any

_PATIENCE_S = 60.0
# As much as one page or batch may be: the reader never waits for somebody to take what it has.
_BUFFER_BYTES = 1 << 25


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One request and what became of it. `status` is the server's, if it was asked; `told` what the client was told."""

    request: Request
    fault: Fault
    status: int | None
    told: int | None

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def path(self) -> str:
        return self.request.path


class Faults:
    """Serves HTTPS at `base_url` until it is closed; what a method asks for is so when it returns.

    `server`: https:// with the certificate of `folder`, or http:// to a server that trusts this proxy.
    `folder`: where `ca.pem`, `server.pem` and `server-key.pem` lie, as a server for development makes them.
    """

    def __init__(self, server: str, folder: Path) -> None:
        self.server, self.ca = server, folder / "ca.pem"
        self.connections = 0  # that were opened so far
        self._planned: collections.deque[tuple[Which, Fault]] = collections.deque()
        self._otherwise: Callable[[Request], Fault] = lambda request: None
        self._plans = threading.Lock()
        self._arrived: list[Request] = []
        self._seen: list[Seen] = []
        self._idle: set[StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = reserve_port()
        self.port = int(self._reserved.getsockname()[1])
        self.base_url = f"https://localhost:{self.port}"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faults", daemon=True)
        self._thread.start()
        self._run(self._listen())

    def next(self, *faults: Fault, when: Which = is_any) -> None:
        """The next requests of which `when` is true meet these, one each, in this order."""
        with self._plans:
            self._planned += [(when, fault) for fault in faults]

    def otherwise(self, rule: Callable[[Request], Fault]) -> None:
        """Requests for which nothing is planned meet what `rule` says; it is called on the proxy's thread."""
        self._otherwise = rule

    def forget(self) -> None:
        """Nothing is planned, nothing was seen."""
        with self._plans:
            self._planned.clear()
        self._otherwise = lambda request: None
        self._arrived.clear()
        self._seen.clear()

    @property
    def planned(self) -> int:
        """How much of what was planned by `next` has not happened yet."""
        with self._plans:
            return len(self._planned)

    @property
    def seen(self) -> list[Seen]:
        """What is over with, in the order in which it ended."""
        return list(self._seen)

    @property
    def arrived(self) -> list[Request]:
        """All requests, in the order in which they came, also those that wait or were never passed on."""
        return list(self._arrived)

    @property
    def presented(self) -> list[str]:
        """Hashes of the refresh tokens that came by, in their order."""
        return [request.refresh_token for request in self.arrived if request.refresh_token]

    @property
    def presented_twice(self) -> list[str]:
        """Hashes of the refresh tokens that came by more than once."""
        return [token for token, times in collections.Counter(self.presented).items() if times > 1]

    def close_idle(self) -> None:
        """Close the connections on which nothing is asked just now, as servers do with those that idle."""
        self._run(self._close_idle())

    def close(self) -> None:
        """Break all connections for good. May be repeated."""
        if self._loop.is_closed():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reserved.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _listen(self) -> None:
        # asyncio switches Nagle's delays off only where the socket says that it is TCP; create_server does not.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self._listener = await asyncio.start_server(
            self._accept, sock=listener, ssl=self._context, limit=_BUFFER_BYTES, ssl_shutdown_timeout=_PATIENCE_S
        )

    async def _close_idle(self) -> None:
        for writer in self._idle:
            writer.close()

    async def _end(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await end_other_tasks()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        upstream = _Upstream(self)
        try:
            # A connection that breaks on one side breaks on the other.
            with contextlib.suppress(OSError, IncompleteReadError):
                while (request := await self._next_request(reader, writer)) is not None:
                    if not await self._deal(request, upstream, writer):
                        break
        finally:
            writer.transport.abort()
            upstream.close()

    async def _next_request(self, reader: StreamReader, writer: StreamWriter) -> Request | None:
        self._idle.add(writer)
        try:
            request = await read_request(reader)
        finally:
            self._idle.discard(writer)
        if request is not None:
            self._arrived.append(request)
        return request

    async def _deal(self, request: Request, upstream: "_Upstream", writer: StreamWriter) -> bool:
        """Whether the connection stays."""
        fault = self._fault_of(request)
        asked = told = None
        try:
            asked = await _asked(request, fault, upstream)
            told = _told(asked, fault)
        finally:
            # Noted before the client can know of it.
            self._seen.append(_seen(request, fault, asked, told))
        if fault is RESET:
            # Closing a socket that does not linger sends RST.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if told is None:
            return False
        return await _tell(told, writer, is_cut=fault is CUT)

    def _fault_of(self, request: Request) -> Fault:
        with self._plans:
            for place, (when, fault) in enumerate(self._planned):
                if when(request):
                    del self._planned[place]
                    return fault
        return self._otherwise(request)


async def _asked(request: Request, fault: Fault, upstream: "_Upstream") -> Reply | None:
    """The server's answer; None where the request does not get so far."""
    if isinstance(fault, Reply) or fault in (DROP, RESET):
        return None
    reply = await upstream.ask(request)
    if isinstance(fault, Hold):
        await fault.pass_by()
    return reply


def _told(asked: Reply | None, fault: Fault) -> Reply | None:
    """What the client is told, or the half of which it is told; None for nothing."""
    if isinstance(fault, Reply):
        return fault
    if isinstance(fault, Alter) and asked is not None:
        return fault.change(asked)
    return None if fault is LOSE else asked


def _seen(request: Request, fault: Fault, asked: Reply | None, told: Reply | None) -> Seen:
    status = asked.status if asked is not None else None
    is_told = told is not None and fault is not CUT
    return Seen(request=request, fault=fault, status=status, told=told.status if told and is_told else None)


async def _tell(told: Reply, writer: StreamWriter, *, is_cut: bool) -> bool:
    """Whether the connection stays: not after half a body, or half a head where there is no body."""
    message = reply_bytes(told)
    half = len(told.body) // 2 or len(message) // 2
    writer.write(message[: len(message) - half] if is_cut else message)
    await writer.drain()
    if is_cut:
        # Closed in order, so that the half arrives.
        writer.close()
        await writer.wait_closed()
    return not is_cut


class _Upstream:
    """The connection to the server that belongs to one connection of a client; opened when it is needed."""

    def __init__(self, proxy: Faults) -> None:
        self._proxy = proxy
        self._streams: tuple[StreamReader, StreamWriter] | None = None

    async def ask(self, request: Request) -> Reply:
        """The server's answer. Raises OSError or IncompleteReadError where it gives none."""
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await self._open()
        reader, writer = self._streams
        writer.write(request_bytes(request, x_forwarded_proto="https", x_forwarded_for="127.0.0.1"))
        await writer.drain()
        return await read_reply(reader, request)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()

    async def _open(self) -> tuple[StreamReader, StreamWriter]:
        server = urlsplit(self._proxy.server)
        tls = ssl.create_default_context(cafile=self._proxy.ca) if server.scheme == "https" else None
        return await asyncio.open_connection(server.hostname, server.port, ssl=tls, limit=_BUFFER_BYTES)


@contextlib.contextmanager
def faults(server: str, folder: Path) -> Iterator[Faults]:
    """A proxy before that server, as Faults describes it, until the block ends."""
    between = Faults(server, folder)
    try:
        yield between
    finally:
        between.close()
