"""A TCP relay between a driver and PostgreSQL, which cuts connections and loses answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

BEFORE_ARRIVAL, BEFORE_ANSWER = "before it arrives", "when it is answered"
_CHUNK = 65_536


class Relay:
    """Relays connections to a server that can be changed, and cuts them on request."""

    def __init__(self, url: str) -> None:
        self.redirect(url)
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._text = b""
        self._moment = ""
        self.cut_done = asyncio.Event()

    def redirect(self, url: str) -> None:
        """Connect new clients to this server."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 5432

    def cut(self, text: bytes, moment: str) -> None:
        """Cut the next connection that carries `text` to the server, before the text arrives or before the answer."""
        self._text, self._moment = text, moment
        self.cut_done.clear()

    def cut_all(self) -> None:
        """Cut every connection at once."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def open(self) -> int:
        """Start the relay and return its port."""
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
        if (task_of_connection := asyncio.current_task()) is not None:
            self._keep(task_of_connection)
        try:
            server_reader, server = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(server)
        loss = asyncio.Event()
        for work in (self._up(reader, server, writer, loss), self._down(server_reader, writer, loss)):
            self._keep(asyncio.create_task(work))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _up(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        loss: asyncio.Event,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if self._text and self._text in data:
                    self._text = b""
                    if self._moment == BEFORE_ARRIVAL:
                        self.cut_done.set()
                        client.transport.abort()
                        break
                    loss.set()
                server.write(data)
        server.close()

    async def _down(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, loss: asyncio.Event) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if loss.is_set():
                    self.cut_done.set()
                    client.transport.abort()
                    break
                client.write(data)
        client.close()


@contextlib.asynccontextmanager
async def relay_to(url: str) -> AsyncIterator[tuple[Relay, str]]:
    """Start a relay to the server in this URL; yield it and the URL through it."""
    relay, parts = Relay(url), urlsplit(url)
    account = parts.netloc.rpartition("@")[0]
    try:
        port = await relay.open()
        yield relay, urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{port}", query="sslmode=disable"))
    finally:
        await relay.close()
