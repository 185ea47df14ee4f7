"""An HTTP proxy like those of companies: it opens tunnels with CONNECT, and records the requests."""

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.constants import PATIENCE_S


class ConnectProxy:
    """Listens on 127.0.0.1 at `port`. `heads` are the requests outside of tunnels.

    If it `refuses`, it answers with 407.
    """

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.refuses = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        # Closing a socket does not wake a thread in accept or recv.
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for each in (self._listening, *self._open):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(client)
            self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(4096)
            if not part:
                return
            head += part
        self.heads.append(head.decode())
        if self.refuses:
            client.sendall(b"HTTP/1.1 407 Sign in\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = head.split()[1].decode().rsplit(":", 1)
        server = socket.create_connection((host, int(port)), PATIENCE_S)
        self._open.append(server)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self._begin(_pass_on, client, server)
        _pass_on(server, client)

    def _begin(self, work: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


@contextlib.contextmanager
def connect_proxy() -> Iterator[ConnectProxy]:
    """Run a proxy within this block."""
    proxy = ConnectProxy()
    try:
        yield proxy
    finally:
        proxy.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
