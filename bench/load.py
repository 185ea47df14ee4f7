"""The load client: keep-alive TLS connections, each of which sends its next request when the last is answered.

It shares the machine with the server, so it does as little as possible: requests are bytes prepared beforehand, and
it reads only the status and `Content-Length` of an answer. It checks every status.
"""

import asyncio
import gc
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Protocol

import msgspec
import uvloop

from bench.machine import busy_s


class Script(Protocol):
    """The requests of one connection. Answers with a status other than `status` count as failures."""

    status: bytes

    def first(self) -> bytes:
        """Return the first request."""

    def next(self, body: bytes) -> bytes:
        """Return the request to send after an answer with `body`."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one window of time. `failures` includes the warm-up."""

    requests: int
    failures: int
    first_failure: str | None
    duration_s: float
    client_cpu_s: float
    server_cpu_s: float
    busy_s: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    cipher: str

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.requests / self.duration_s

    @property
    def server_cpu_us(self) -> float:
        """Processor time of the server for one request, all its threads together, in microseconds."""
        return self.server_cpu_s / max(1, self.requests) * 1e6

    @property
    def others_cpu_share(self) -> float:
        """The share of one core used by neither client nor server. A separate database counts here."""
        return (self.busy_s - self.client_cpu_s - self.server_cpu_s) / self.duration_s

    @property
    def client_cpu_share(self) -> float:
        """The share of one core used by the client."""
        return self.client_cpu_s / self.duration_s


class Tally:
    """The counts of all connections of one load."""

    def __init__(self) -> None:
        self.answers = 0
        self.failures = 0
        self.first_failure: str | None = None
        self.latencies_s: list[float] = []
        self.is_over = False

    def fail(self, what: str) -> None:
        """Count a failure, and keep the description of the first."""
        self.failures += 1
        self.first_failure = self.first_failure or what


class Connection(asyncio.Protocol):
    """One keep-alive connection that follows its script until the tally is over; `closed` is set then."""

    def __init__(self, script: Script, tally: Tally) -> None:
        self._script = script
        self._tally = tally
        self._status_line = b"HTTP/1.1 " + script.status
        self._unread = b""
        self._sent_s = 0.0
        self._transport: asyncio.Transport
        self.cipher = ""
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        name, version, _ = transport.get_extra_info("cipher")
        self.cipher = f"{version} {name}"

    def start(self) -> None:
        """Send the first request."""
        self._send(self._script.first())

    def data_received(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        body_at = data.find(b"\r\n\r\n") + 4
        if body_at == 3 or len(data) - body_at < content_length(data[:body_at]):
            self._unread = data
            return
        self._unread = b""
        self._on_answer(data, data[body_at:])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._tally.is_over:
            self._tally.fail(f"the server closed a connection: {exc}")
        if not self.closed.done():
            self.closed.set_result(None)

    def _on_answer(self, answer: bytes, body: bytes) -> None:
        tally = self._tally
        tally.answers += 1
        tally.latencies_s.append(time.perf_counter() - self._sent_s)
        if not answer.startswith(self._status_line):
            tally.fail(answer[:400].decode("latin-1"))
        if tally.is_over:
            self._transport.close()
            return
        self._send(self._script.next(body))

    def _send(self, request: bytes) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(request)


def content_length(head: bytes) -> int:
    """The length that an answer's head declares."""
    at = head.lower().index(b"\r\ncontent-length:") + 17
    return int(head[at : head.index(b"\r\n", at)])


def run(
    scripts: Sequence[Script],
    *,
    port: int,
    ca: Path,
    warm_up_s: float,
    duration_s: float,
    server_cpu_s: Callable[[], float],
) -> Load:
    """Run each script on its own connection, and return the figures of `duration_s` after the warm-up."""
    gc.collect()
    gc.disable()
    try:
        return uvloop.run(_run(scripts, port, ca, warm_up_s, duration_s, server_cpu_s))
    finally:
        gc.enable()


async def _run(
    scripts: Sequence[Script],
    port: int,
    ca: Path,
    warm_up_s: float,
    duration_s: float,
    server_cpu_s: Callable[[], float],
) -> Load:
    tally = Tally()
    connections = await _connect(scripts, tally, port, ca)
    for connection in connections:
        connection.start()
    await asyncio.sleep(warm_up_s)
    tally.latencies_s.clear()
    before = (time.perf_counter(), time.process_time(), server_cpu_s(), busy_s(), tally.answers)
    await asyncio.sleep(duration_s)
    after = (time.perf_counter(), time.process_time(), server_cpu_s(), busy_s(), tally.answers)
    cuts_s = quantiles(tally.latencies_s, n=100) if len(tally.latencies_s) > 1 else [0.0] * 99
    await _close(connections, tally)
    return Load(
        requests=after[4] - before[4],
        failures=tally.failures,
        first_failure=tally.first_failure,
        duration_s=after[0] - before[0],
        client_cpu_s=after[1] - before[1],
        server_cpu_s=after[2] - before[2],
        busy_s=after[3] - before[3],
        p50_ms=cuts_s[49] * 1000,
        p99_ms=cuts_s[98] * 1000,
        longest_ms=max(tally.latencies_s, default=0.0) * 1000,
        cipher=connections[0].cipher,
    )


async def _connect(scripts: Sequence[Script], tally: Tally, port: int, ca: Path) -> list[Connection]:
    context = ssl.create_default_context(cafile=ca)
    loop = asyncio.get_running_loop()
    connections = []
    for script in scripts:
        _, connection = await loop.create_connection(
            lambda script=script: Connection(script, tally),  # type: ignore[misc]
            "127.0.0.1",
            port,
            ssl=context,
            server_hostname="localhost",
        )
        connections.append(connection)
    return connections


async def _close(connections: Sequence[Connection], tally: Tally) -> None:
    """Let each connection receive its last answer, so that no request is cut off."""
    tally.is_over = True
    _, late = await asyncio.wait([connection.closed for connection in connections], timeout=10)
    if late:
        tally.fail(f"{len(late)} requests were not answered within 10 s")
