"""A server in a process of its own: starts, times, watches and stops it."""

import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import psutil

from bench.load import content_length
from bench.scripts import health

HOST = "127.0.0.1"
_START_TIMEOUT_S = 30.0


class BenchError(Exception):
    """The measurement cannot continue; the text says why."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to a single request."""

    status: bytes
    body: bytes


class Server:
    """One server process, which runs inside its `with` block."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        ca: Path,
        folder: Path,
        environ: Mapping[str, str],
        log: Path,
    ) -> None:
        self.port = port
        self.ca = ca
        self.start_s = 0.0
        self._command = command
        self._folder = folder
        self._environ = environ
        self._log = log
        self._popen: subprocess.Popen[bytes]
        self._process: psutil.Process

    def __enter__(self) -> Self:
        begun_s = time.perf_counter()
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._command, cwd=self._folder, env=dict(self._environ), stdout=log, stderr=log
            )
        try:
            self._await_answer(begun_s + _START_TIMEOUT_S)
        except BaseException:
            self._stop()
            raise
        self.start_s = time.perf_counter() - begun_s
        self._process = psutil.Process(self._popen.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def cpu_s(self) -> float:
        """Return the processor time used so far by all threads and child processes."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())

    def rss_bytes(self) -> int:
        """Return the resident memory, including child processes."""
        return sum(int(process.memory_info().rss) for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _await_answer(self, deadline_s: float) -> None:
        while time.perf_counter() < deadline_s:
            if self._popen.poll() is not None:
                raise BenchError(f"{self._command[0]} stopped at once:\n{self._log_tail()}")
            try:
                send_once(health(), port=self.port, ca=self.ca)
            except ConnectionError:
                time.sleep(0.001)
            else:
                return
        raise BenchError(f"{self._command[0]} gave no answer:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def _stop(self) -> None:
        self._popen.terminate()
        try:
            self._popen.wait(20)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


def send_once(request: bytes, *, port: int, ca: Path) -> Answer:
    """Return the answer to one request on a new connection. Raises ConnectionError while nothing listens."""
    with (
        socket.create_connection((HOST, port), timeout=10) as plain,
        # Read the authority only now: on its first start, a server creates it before it listens.
        ssl.create_default_context(cafile=ca).wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(request)
        return _read_answer(connection)


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _read_answer(connection: ssl.SSLSocket) -> Answer:
    data = b""
    while True:
        received = connection.recv(65536)
        if not received:
            raise ConnectionResetError("the server closed the connection before its answer was complete")
        data += received
        body_at = data.find(b"\r\n\r\n") + 4
        if body_at > 3 and len(data) - body_at >= content_length(data[:body_at]):
            return Answer(status=data[9:12], body=data[body_at:])
