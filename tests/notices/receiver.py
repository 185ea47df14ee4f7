"""A receiver of webhooks: a real HTTPS server on this machine, which answers as a test says."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from stoplist.notices.webhook import Webhook
from stoplist.server.tls import ensure_development_certificate
from tests.services.http_messages import Request, read_request

HOST = "hooks.example"
SECRET = b"s" * 24
OK, BROKEN = "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"
HANGS = ""
# Certificates are checked by the clock of this machine.
NOW_MS = time.time_ns() // 1_000_000


class Receiver:
    """Answers each request with the first of `answers`, and goes on with the last one; keeps what it received."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.answers: list[str] = [OK]
        self.received: list[Request] = []
        self.arrived = asyncio.Event()
        self.looked_up: list[str] = []
        self._open: set[asyncio.StreamWriter] = set()
        self.addresses: list[list[str]] = [["127.0.0.1"]]

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

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which ends with the receiver at the latest."""
        self._open.add(writer)
        try:
            await self.take(reader, writer)
        finally:
            self._open.discard(writer)

    async def close(self) -> None:
        """Abort what is open, and let the event loop close it."""
        for writer in self._open:
            writer.transport.abort()
        while self._open:  # noqa: ASYNC110 - each ends in the next turns of the loop
            await asyncio.sleep(0)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
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
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def trusting(folder: Path) -> ssl.SSLContext:
    """Return a client context that trusts only the authority of this folder."""
    return ssl.create_default_context(cafile=folder / "ca.pem")


def serving_tls(folder: Path, *hosts: str) -> ssl.SSLContext:
    """Return a server context with a certificate for these hosts, made in the folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ensure_development_certificate(folder, hosts or (HOST,), NOW_MS))
    return context


@asynccontextmanager
async def receiving(folder: Path) -> AsyncIterator[Receiver]:
    """Serve a receiver on a free port for the duration of the context."""
    receiver: Receiver
    server = await asyncio.start_server(
        lambda reader, writer: receiver.serve(reader, writer), "127.0.0.1", 0, ssl=serving_tls(folder)
    )
    receiver = Receiver(folder, server.sockets[0].getsockname()[1])
    async with server:
        yield receiver
        server.close()
        await receiver.close()
