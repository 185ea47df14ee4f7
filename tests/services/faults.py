"""An HTTPS proxy between a client and `stoplist serve` that injects faults, as networks and other proxies cause them.

    from tests.services.faults import Faults
    from tests.services.fault_kinds import DROP, LOSE, Hold, Reply, is_api, is_refresh

    with Faults(server.base_url, server.ca.parent) as between:      # server: tests.e2e.server_process.Server
        client = Client(between.base_url, ca_file=between.ca, …)    # ca, certificate and key are the server's
        between.next(LOSE, when=is_refresh)                         # the answer to the next refresh is lost
        between.next(Reply(status=503), None, DROP, when=is_api)    # the first and third request of the API from now on
        client.unsubscribe("email", ["ann@example.com"])
        assert between.planned == 0                                 # every planned fault has happened
        assert between.presented_twice == []                        # no refresh token was presented more than once
        assert [seen.client_status for seen in between.seen] == [200, 503, …]

To hold an answer back: `held = Hold(); between.next(held, when=is_refresh)`. While another thread or process waits for
it, `held.wait()` returns once the server has answered (and so has committed), and `held.release()` passes it on.
"""

import asyncio
import collections
import socket
import ssl
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tests.services.fault_kinds import CUT, DROP, INTERIM, LOSE, RESET, Alter, Fault, Hold, Which, is_any
from tests.services.http_messages import Reply, Request, read_reply, read_request, reply_bytes, request_bytes
from tests.services.threaded_server import BUFFER_BYTES, ThreadedServer


class RecordedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its outcome: the server's `status`, if it was asked, and the `client_status` that arrived."""

    request: Request
    fault: Fault
    status: int | None
    client_status: int | None

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def path(self) -> str:
        return self.request.path


class Faults(ThreadedServer):
    """Serves HTTPS at `base_url` until it is closed.

    `server`: https:// with the certificate of `folder`, or http:// to a server that trusts this proxy.
    `folder`: contains `ca.pem`, `server.pem` and `server-key.pem`, as a development server creates them.
    """

    def __init__(self, server: str, folder: Path) -> None:
        self.server, self.ca = server, folder / "ca.pem"
        self.connections = 0  # opened so far
        self._planned: collections.deque[tuple[Which, Fault]] = collections.deque()
        self._otherwise: Callable[[Request], Fault] = lambda request: None
        self._plans = threading.Lock()
        self._arrived: list[Request] = []
        self._exchange: list[RecordedExchange] = []
        self._idle: set[StreamWriter] = set()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
        super().__init__(tls)
        self.base_url = f"https://localhost:{self.port}"

    def next(self, *faults: Fault, when: Which = is_any) -> None:
        """Plan these faults, one each and in this order, for the next requests that `when` selects."""
        with self._plans:
            self._planned += [(when, fault) for fault in faults]

    def otherwise(self, rule: Callable[[Request], Fault]) -> None:
        """Apply the rule to requests without a planned fault. It is called on the proxy's thread."""
        self._otherwise = rule

    def forget(self) -> None:
        """Remove all planned faults and recorded requests."""
        with self._plans:
            self._planned.clear()
        self._otherwise = lambda request: None
        self._arrived.clear()
        self._exchange.clear()

    @property
    def planned(self) -> int:
        """Return how many faults planned by `next` have not happened yet."""
        with self._plans:
            return len(self._planned)

    @property
    def seen(self) -> list[RecordedExchange]:
        """Return the finished requests, in the order in which they ended."""
        return list(self._exchange)

    @property
    def arrived(self) -> list[Request]:
        """Return all requests in the order of arrival, also those that are held or were never passed on."""
        return list(self._arrived)

    @property
    def presented(self) -> list[str]:
        """Return the hashes of the refresh tokens presented, in their order."""
        return [request.refresh_token for request in self.arrived if request.refresh_token]

    @property
    def presented_twice(self) -> list[str]:
        """Return the hashes of the refresh tokens presented more than once."""
        return [token for token, times in collections.Counter(self.presented).items() if times > 1]

    def close_idle(self) -> None:
        """Close the idle connections, as servers do."""
        self._run(self._close_idle())

    async def _close_idle(self) -> None:
        for writer in self._idle:
            writer.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        upstream = _Upstream(self)
        try:
            while (request := await self._next_request(reader, writer)) is not None:
                if not await self._answer(request, upstream, writer):
                    break
        finally:
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

    async def _answer(self, request: Request, upstream: "_Upstream", writer: StreamWriter) -> bool:
        """Return whether the connection stays open. Raise OSError or EOFError to break it."""
        fault = self._fault_of(request)
        server_reply = reported = None
        try:
            server_reply = await _server_reply(request, fault, upstream)
            reported = _client_reply(server_reply, fault)
        finally:
            # Recorded before the client can see the outcome.
            self._exchange.append(_exchange(request, fault, server_reply, reported))
        if fault is RESET:
            # Closing a socket without lingering sends RST.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        while fault is INTERIM:  # until the connection breaks
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
            await writer.drain()
            await asyncio.sleep(0)  # drain alone does not let others run
        if reported is None:
            raise ConnectionAbortedError
        message = reply_bytes(reported)
        # Half of the body, or half of the head if there is none.
        left_out = (len(reported.body) // 2 or len(message) // 2) if fault is CUT else 0
        writer.write(message[: len(message) - left_out])
        await writer.drain()
        return fault is not CUT

    def _fault_of(self, request: Request) -> Fault:
        with self._plans:
            for place, (when, fault) in enumerate(self._planned):
                if when(request):
                    del self._planned[place]
                    return fault
        return self._otherwise(request)


async def _server_reply(request: Request, fault: Fault, upstream: "_Upstream") -> Reply | None:
    """Return the server's answer; None if the request does not reach it."""
    if isinstance(fault, Reply) or fault in (DROP, RESET, INTERIM):
        return None
    reply = await upstream.ask(request)
    if isinstance(fault, Hold):
        await fault.hold_answer()
    return reply


def _client_reply(server_reply: Reply | None, fault: Fault) -> Reply | None:
    """Return the answer for the client, also if only half of it is sent; None for none."""
    if isinstance(fault, Reply):
        return fault
    if isinstance(fault, Alter) and server_reply is not None:
        return fault.change(server_reply)
    return None if fault is LOSE else server_reply


def _exchange(request: Request, fault: Fault, server_reply: Reply | None, reported: Reply | None) -> RecordedExchange:
    status = server_reply.status if server_reply is not None else None
    is_reported = reported is not None and fault is not CUT
    return RecordedExchange(
        request=request, fault=fault, status=status, client_status=reported.status if reported and is_reported else None
    )


class _Upstream:
    """The server connection of one client connection, opened when needed."""

    def __init__(self, proxy: Faults) -> None:
        self._proxy = proxy
        self._streams: tuple[StreamReader, StreamWriter] | None = None

    async def ask(self, request: Request) -> Reply:
        """Return the server's answer. Raise OSError or EOFError if there is none."""
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
        return await asyncio.open_connection(server.hostname, server.port, ssl=tls, limit=BUFFER_BYTES)
