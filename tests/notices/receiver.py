"""A receiver of webhooks: a real HTTPS server on this machine, which answers as a test says."""

import base64
import ssl
import threading
import time
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from typing import Any

from stoplist.notices.webhook import Webhook
from stoplist.server.tls import ensure_development_certificate
from tests.constants import PATIENCE_S
from tests.server.serving import trusting
from tests.services.http_messages import Request, read_request
from tests.services.threaded_server import ThreadedServer

HOST = "hooks.example"
SECRET = b"s" * 24
SECRET_TEXT = f"whsec_{base64.b64encode(SECRET).decode()}"
OK, BROKEN = "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"
HANGS = ""
# Certificates are checked by the clock of this machine.
NOW_MS = time.time_ns() // 1_000_000


class Receiver(ThreadedServer):
    """Answers each request with the first of `answers`, and goes on with the last one; keeps what it received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: list[str] = [OK]
        self.received: list[Request] = []
        self.arrived = threading.Event()
        self.looked_up: list[str] = []
        self.addresses: list[list[str]] = [["127.0.0.1"]]
        super().__init__(serving_tls(folder))

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}/notices?of=stoplist"

    def webhook(self, **options: Any) -> Webhook:
        """Return a webhook to this receiver, which trusts its certificate and finds it by its name."""
        chosen: dict[str, Any] = {
            "is_private_allowed": True,
            "tls": trusting(self.folder),
            "look_up": self._look_up,
        } | options
        return Webhook(chosen.pop("url", self.url), chosen.pop("secrets", (SECRET,)), **chosen)

    async def _look_up(self, host: str, port: int) -> list[Any]:
        """Return the addresses of the next look-up, or those of the last."""
        self.looked_up.append(host)
        found = self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]
        return [(None, None, 0, "", (address, port)) for address in found]

    def wait_for_notice(self) -> Request:
        """Return the next notice that arrives."""
        assert self.arrived.wait(PATIENCE_S)
        self.arrived.clear()
        return self.received[-1]

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        request = await read_request(reader)
        if request is None:
            return
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.received.append(request)
        self.arrived.set()
        if answer == HANGS:
            await reader.read()
        writer.write(answer.encode())
        await writer.drain()


def serving_tls(folder: Path, *hosts: str) -> ssl.SSLContext:
    """Return a server context with a certificate for these hosts, made in the folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ensure_development_certificate(folder, hosts or (HOST,), NOW_MS))
    return context
