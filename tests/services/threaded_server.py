"""A server on a reserved port of 127.0.0.1, on an event loop and a thread of its own.

So tests may use it from any loop or none.
"""

import asyncio
import socket
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

from tests.constants import PATIENCE_S
from tests.services.managed_program import reserve_port

# More than any page or batch, so that a reader never waits for its consumer.
BUFFER_BYTES = 1 << 25


class ThreadedServer:
    """Serves connections by `_serve`, over TLS if it has a context for it, until `close` or the end of its context.

    Every method takes effect before it returns.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._reserved = reserve_port()
        self.port = int(self._reserved.getsockname()[1])
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(self).__name__, daemon=True)
        self._thread.start()
        self.mend()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Break all connections, and refuse new ones until `mend`."""
        self._run(self._cut())

    def mend(self) -> None:
        """Accept connections again, on the same port."""
        self._run(self._listen())

    def close(self) -> None:
        """Break all connections for good. May be repeated."""
        if self._loop.is_closed():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reserved.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _listen(self) -> None:
        if self._listener is None:
            listening = socket.create_server(("127.0.0.1", self.port), backlog=1024)
            # asyncio does so for its own sockets alone: small pieces would wait for an acknowledgement, 40 ms each.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._listener = await self._start(listening)

    async def _start(self, listening: socket.socket) -> asyncio.Server:
        tls: dict[str, Any] = {"ssl": self._tls, "ssl_shutdown_timeout": PATIENCE_S} if self._tls else {}
        return await asyncio.start_server(self._accept, sock=listening, limit=BUFFER_BYTES, **tls)

    async def _cut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        broken = [task for task in self._connections if task.cancel()]
        await asyncio.gather(*broken, return_exceptions=True)
        await asyncio.sleep(0)  # The loop closes the sockets in its next iteration.

    async def _end(self) -> None:
        await self._cut()
        # Also those that make connections of sockets that were accepted just now.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # Closing the loop alone would not wait for the thread that looked a host name up.
        await self._loop.shutdown_default_executor()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._listener is None:
            writer.transport.abort()
            return
        task = self._loop.create_task(self._serve_and_close(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve_and_close(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError):
                await self._serve(reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one connection. It is closed after a return, and broken after an OSError or EOFError."""
        raise NotImplementedError
