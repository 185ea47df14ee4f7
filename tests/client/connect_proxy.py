"""An HTTP proxy like those of companies: it opens tunnels with CONNECT, and records the requests."""

import asyncio
from asyncio import StreamReader, StreamWriter

from tests.services.threaded_server import ThreadedServer


class ConnectProxy(ThreadedServer):
    """Listens on 127.0.0.1 at `port`. `heads` are the requests outside of tunnels.

    If it `refuses`, it answers with 407.
    """

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.refuses = False
        super().__init__()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.refuses:
            writer.write(b"HTTP/1.1 407 Sign in\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = head.split()[1].rsplit(":", 1)
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        ways = [asyncio.ensure_future(_pass_on(*way)) for way in ((reader, server_writer), (server_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pass_on(reader: StreamReader, writer: StreamWriter) -> None:
    while part := await reader.read(65_536):
        writer.write(part)
        await writer.drain()
