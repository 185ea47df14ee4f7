"""The load client: keep-alive TLS connections, each of which sends its next request when the last is answered.

It shares the machine with the server, so it does as little as possible: requests are bytes prepared beforehand, and
it reads only the status and `Content-Length` of an answer. It checks every status.
"""

import asyncio
import gc
import ssl
import time
from collections.abc import Sequence
from statistics import quantiles

import msgspec
import uvloop

from bench.machine import busy_s
from bench.scripts import Script, forwarded
from bench.server import HOST, Server, content_length


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one window of time. `failures` includes the warm-up.

    `rate` is in answers per second, the processor time of the server that of one request, all its threads together. The
    shares are of one core; a separate database counts as others.
    """

    rate: float
    server_cpu_us: float
    client_cpu_share: float
    others_cpu_share: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    requests: int
    failures: int
    first_failure: str | None
    cipher: str


def run(
    server: Server, scripts: Sequence[Script], *, duration_s: float, warm_up_s: float = 0.0, status: bytes = b"200"
) -> Load:
    """Run each script on its own connection, and return the figures of `duration_s` after the warm-up.

    Answers with a status other than `status` count as failures.
    """
    gc.collect()
    gc.disable()
    try:
        return uvloop.run(_Client(server, status).run(scripts, duration_s, warm_up_s))
    finally:
        gc.enable()


class _Client:
    """The answers to all connections of one load."""

    def __init__(self, server: Server, status: bytes) -> None:
        self._server, self.is_plain = server, not server.tls
        self._tls = ssl.create_default_context(cafile=server.ca) if server.tls else None
        self.status_line = b"HTTP/1.1 " + status
        self.latencies_s: list[float] = []
        self.failures: list[str] = []
        self.is_over = False

    async def run(self, scripts: Sequence[Script], duration_s: float, warm_up_s: float) -> Load:
        clocks = (time.perf_counter, time.process_time, self._server.cpu_s, busy_s)
        connections = [await self._connect(script) for script in scripts]
        for connection in connections:
            connection.start()
        await asyncio.sleep(warm_up_s)
        self.latencies_s.clear()
        before_s = [clock() for clock in clocks]
        await asyncio.sleep(duration_s)
        after_s = [clock() for clock in clocks]
        latencies_s = tuple(self.latencies_s)
        await self._close(connections)
        elapsed_s, client_s, server_s, machine_s = (
            after - before for before, after in zip(before_s, after_s, strict=True)
        )
        cuts_s = quantiles(latencies_s, n=100) if len(latencies_s) > 1 else [0.0] * 99
        return Load(
            rate=len(latencies_s) / elapsed_s,
            server_cpu_us=server_s / max(1, len(latencies_s)) * 1e6,
            client_cpu_share=client_s / elapsed_s,
            others_cpu_share=(machine_s - client_s - server_s) / elapsed_s,
            p50_ms=cuts_s[49] * 1000,
            p99_ms=cuts_s[98] * 1000,
            longest_ms=max(latencies_s, default=0.0) * 1000,
            requests=len(latencies_s),
            failures=len(self.failures),
            first_failure=self.failures[0] if self.failures else None,
            cipher=connections[0].cipher,
        )

    async def _connect(self, script: Script) -> "_Connection":
        name = "localhost" if self._tls else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(script, self), HOST, self._server.port, ssl=self._tls, server_hostname=name
        )
        return connection

    async def _close(self, connections: "Sequence[_Connection]") -> None:
        """Let each connection receive its last answer, so that no request is cut off."""
        self.is_over = True
        _, late = await asyncio.wait([connection.closed for connection in connections], timeout=10)
        if late:
            self.failures.append(f"{len(late)} requests were not answered within 10 s")


class _Connection(asyncio.Protocol):
    """One keep-alive connection that follows its script until the load is over; `closed` is set then."""

    def __init__(self, script: Script, client: _Client) -> None:
        self._script, self._client = script, client
        self._unread, self._sent_s = b"", 0.0
        self._transport: asyncio.Transport
        self.cipher = "plain HTTP"
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if cipher := transport.get_extra_info("cipher"):
            name, version, _ = cipher
            self.cipher = f"{version} {name}"

    def start(self) -> None:
        """Send the first request."""
        self._send(next(self._script))

    def data_received(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        body_at = data.find(b"\r\n\r\n") + 4
        if body_at == 3 or len(data) - body_at < content_length(data[:body_at]):
            self._unread = data
            return
        self._unread = b""
        client = self._client
        client.latencies_s.append(time.perf_counter() - self._sent_s)
        if not data.startswith(client.status_line):
            client.failures.append(data[:400].decode("latin-1"))
        if client.is_over:
            self._transport.close()
            return
        self._send(self._script.send(data[body_at:]))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._client.is_over:
            self._client.failures.append(f"the server closed a connection: {exc}")
        if not self.closed.done():
            self.closed.set_result(None)

    def _send(self, request: bytes) -> None:
        if self._client.is_plain:
            request = forwarded(request)
        self._sent_s = time.perf_counter()
        self._transport.write(request)
