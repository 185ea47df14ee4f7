"""A partner's program with one keep-alive connection: one request at a time, with large bodies both ways."""

import socket
import ssl
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from bench.load import content_length
from bench.server import HOST, BenchError

_HEAD_BYTES = 65_536


class TimedAnswer(msgspec.Struct, frozen=True):
    """An answer, and the time from the first byte sent to the last byte read."""

    body: bytes
    took_s: float


class Caller:
    """A client that is connected inside its `with` block."""

    def __init__(self, *, port: int, ca: Path, access_token: str = "") -> None:
        self._port, self._ca = port, ca
        self._head = f"Host: localhost\r\nAuthorization: Bearer {access_token}\r\n"
        self._connection: ssl.SSLSocket

    def __enter__(self) -> Self:
        plain = socket.create_connection((HOST, self._port), timeout=120)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = ssl.create_default_context(cafile=self._ca).wrap_socket(plain, server_hostname="localhost")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, target: str) -> TimedAnswer:
        """Send a `GET` and return the answer."""
        return self.call(f"GET {target} HTTP/1.1\r\n{self._head}\r\n".encode())

    def post(self, path: str, body: bytes, *, prefer: str = "") -> TimedAnswer:
        """Send a `POST` of JSON and return the answer."""
        prefer_header = f"Prefer: {prefer}\r\n" if prefer else ""
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}{prefer_header}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return self.call(head.encode() + body)

    def call(self, request: bytes) -> TimedAnswer:
        """Send a request given as bytes and return the answer."""
        begun_s = time.perf_counter()
        self.send(request)
        body = self.receive()
        return TimedAnswer(body, time.perf_counter() - begun_s)

    def send(self, request: bytes) -> None:
        """Send a request without waiting for the answer, which `receive` returns."""
        self._connection.sendall(request)

    def receive(self) -> bytes:
        """Return the body of the next answer. Raises BenchError if its status is not 200."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._received(self._connection.recv(_HEAD_BYTES))
        head, _, begun = data.partition(b"\r\n\r\n")
        body = bytearray(content_length(head + b"\r\n"))
        body[: len(begun)] = begun
        filled, view = len(begun), memoryview(body)
        while filled < len(body):
            count = self._connection.recv_into(view[filled:])
            if not count:
                raise BenchError("the server closed the connection in the middle of an answer")
            filled += count
        if not head.startswith(b"HTTP/1.1 200"):
            raise BenchError(f"the server answered {head[:40]!r}: {bytes(body[:300])!r}")
        return bytes(body)

    def _received(self, data: bytes) -> bytes:
        if not data:
            raise BenchError("the server closed the connection before it answered")
        return data
