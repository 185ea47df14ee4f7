"""A TCP relay between a driver and its PostgreSQL: cuts connections, and loses answers on their way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

ARRIVES, ANSWERED = "before it arrives", "when it is answered"
_CHUNK = 65_536


class Relay:
    """Leads to a server that may be changed; `cuts` says what is cut, and when."""

    def __init__(self, url: str) -> None:
        self.leads_to(url)
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._text = b""
        self._when = ""
        self.was_cut = asyncio.Event()

    def leads_to(self, url: str) -> None:
        """Whoever connects from now on reaches this server."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 5432

    def cut(self, text: bytes, when: str) -> None:
        """The next connection that carries this text to the server is cut, before or after the server has it."""
        self._text, self._when = text, when
        self.was_cut.clear()

    def cut_all(self) -> None:
        """Every connection is cut at once."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def open(self) -> int:
        """Its port."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        self.cut_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if (opening := asyncio.current_task()) is not None:
            self._keep(opening)
        try:
            server_reader, server = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(server)
        loses = asyncio.Event()
        for work in (self._up(reader, server, writer, loses), self._down(server_reader, writer, loses)):
            self._keep(asyncio.create_task(work))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _up(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        loses: asyncio.Event,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if self._text and self._text in data:
                    self._text = b""
                    if self._when == ARRIVES:
                        self.was_cut.set()
                        client.transport.abort()
                        break
                    loses.set()
                server.write(data)
        server.close()

    async def _down(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, loses: asyncio.Event) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if loses.is_set():
                    self.was_cut.set()
                    client.transport.abort()
                    break
                client.write(data)
        client.close()


@contextlib.asynccontextmanager
async def relayed(url: str) -> AsyncIterator[tuple[Relay, str]]:
    """A relay before the server of this address, and the address by way of it."""
    relay, parts = Relay(url), urlsplit(url)
    account = parts.netloc.rpartition("@")[0]
    try:
        port = await relay.open()
        yield relay, urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{port}", query="sslmode=disable"))
    finally:
        await relay.close()
