"""A server in a process of its own, and a client with one connection to it."""

import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil

from bench.machine import process_s
from bench.scripts import forwarded, get, health

HOST = "127.0.0.1"
_START_TIMEOUT_S = 30.0


class BenchError(Exception):
    """The measurement cannot continue; the text says why."""


class Answer(msgspec.Struct, frozen=True):
    """An answer, and the time from the first byte sent to the last byte read."""

    status: bytes
    body: bytes
    took_s: float

    def require(self, status: bytes = b"200") -> Self:
        """Return this answer. Raises BenchError if it has another status."""
        if self.status != status:
            raise BenchError(f"the server answered {self.status!r}: {self.body[:300]!r}")
        return self

    def json(self) -> Any:
        """Return the body. Raises BenchError if the status is not 200."""
        return json.loads(self.require().body)


class Server:
    """One server process, which runs inside its `with` block. Its certificate is in `folder`, its log beside it.

    Without `tls` it speaks plain HTTP, and every request is sent as a trusted proxy would forward it.
    """

    def __init__(
        self, command: Sequence[str], *, name: str, folder: Path, environ: Mapping[str, str], tls: bool = True
    ) -> None:
        self.port, self.tls = 0, tls
        self._ca = folder / "ca.pem"
        self._command, self._environ = command, dict(environ)
        self._folder, self._log = folder.parent, folder.with_name(f"{name}.log")
        self._process: psutil.Popen

    def __enter__(self) -> Self:
        self.port = free_port()
        command = [*self._command, "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = psutil.Popen(command, cwd=self._folder, env=self._environ, stdout=log, stderr=log)
        try:
            self._await_answer(time.perf_counter() + _START_TIMEOUT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(psutil.NoSuchProcess):
            self._process.terminate()
        try:
            self._process.wait(20)
        except psutil.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start_s(self) -> float:
        """Start and stop the server, and return the seconds from its start to its first answer."""
        begun_s = time.perf_counter()
        with self:
            return time.perf_counter() - begun_s

    @property
    def ca(self) -> Path | None:
        """The authority that signed the certificate; None for plain HTTP."""
        return self._ca if self.tls else None

    def caller(self) -> "Caller":
        """Return a client with a new connection."""
        return Caller(self.port, self.ca)

    def send_once(self, request: bytes) -> Answer:
        """Return the answer to one request on a new connection. Raises ConnectionError while nothing listens."""
        with self.caller() as caller:
            caller.send(request)
            return caller.receive()

    def cpu_s(self) -> float:
        """Return the processor time used so far by all threads and child processes."""
        return sum(map(process_s, self._processes()))

    def rss_mib(self) -> float:
        """Return the resident memory, including child processes."""
        return sum(int(process.memory_info().rss) for process in self._processes()) / 2**20

    def _processes(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _await_answer(self, deadline_s: float) -> None:
        while self._process.poll() is None and time.perf_counter() < deadline_s:
            try:
                self.send_once(health())
            except ConnectionError:
                time.sleep(0.001)
            else:
                return
        raise BenchError(f"{self._command[0]} gave no answer:\n{self._log.read_text(errors='replace')[-2000:]}")


class Caller:
    """A client with one keep-alive connection, which is closed at the end of its `with` block."""

    def __init__(self, port: int, ca: Path | None) -> None:
        self._connection = socket.create_connection((HOST, port), timeout=120)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_plain = ca is None
        if ca is not None:
            # Read the authority only now: on its first start, a server creates it before it listens.
            context = ssl.create_default_context(cafile=ca)
            self._connection = context.wrap_socket(self._connection, server_hostname="localhost")
        self._answers = self._connection.makefile("rb")
        self._sent_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._connection.close()

    def call(self, request: bytes) -> Answer:
        """Send a request and return the answer. Raises BenchError if its status is not 200."""
        self.send(request)
        return self.receive().require()

    def send(self, request: bytes) -> None:
        """Send a request without waiting for the answer, which `receive` returns."""
        if self._is_plain:
            request = forwarded(request)
        self._sent_s = time.perf_counter()
        self._connection.sendall(request)

    def pages(self, path: str, access_token: str) -> Iterator[tuple[dict[str, Any], float]]:
        """Yield each page of 10 000 of a feed, and the seconds that it took."""
        cursor, has_more = "", True
        while has_more:
            answer = self.call(get(f"{path}?limit=10000{cursor}", access_token))
            page = answer.json()
            yield page, answer.took_s
            cursor, has_more = f"&cursor={page['next_cursor']}", page["has_more"]

    def end_of_feed(self, path: str, access_token: str) -> str:
        """Read a whole feed, and return the cursor behind its last record."""
        *_, (page, _) = self.pages(path, access_token)
        return str(page["next_cursor"])

    def receive(self) -> Answer:
        """Return the next answer, whatever its status. Raises ConnectionError if it is not complete."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (line := self._answers.readline()):
                raise ConnectionResetError("the server closed the connection before it answered")
            head += line
        body = self._answers.read(content_length(head))
        return Answer(head[9:12], body, time.perf_counter() - self._sent_s)


def content_length(head: bytes) -> int:
    """Return the length that an answer's head declares."""
    at = head.lower().index(b"\r\ncontent-length:") + 17
    return int(head[at : head.index(b"\r\n", at)])


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
