"""A TCP proxy between the product and one of its stores, which injects faults of the network.

It runs on an event loop and a thread of its own, so that a test may use it from any loop or none.
"""

import asyncio
import contextlib
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.services.managed_program import end_other_tasks, reserve_port

REQUESTS, ANSWERS, SELECTED = "requests", "answers", "selected requests"
_PIECE_BYTES = 1 << 16


class Proxy:
    """Forwards connections from `port` of 127.0.0.1 to the host and port of a URL, until it is closed.

    Every method takes effect before it returns.
    """

    def __init__(self, url: str) -> None:
        self.dropped = 0  # answers dropped by `drop_answers_after`
        self._target = _host_and_port(url)
        self._reserved = reserve_port()
        self.port = int(self._reserved.getsockname()[1])
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._flows = {direction: asyncio.Event() for direction in (REQUESTS, ANSWERS, SELECTED)}
        self._delay_s = 0.0
        self._is_fatal: Callable[[bytes], bool] | None = None
        self._is_dropped: Callable[[bytes], bool] | None = None
        self._is_held: Callable[[bytes], bool] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.release()
        self.mend()

    def url(self, url: str) -> str:
        """Return the same URL through this proxy."""
        parts = urlsplit(url)
        who, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{who}{at}127.0.0.1:{self.port}"))

    def redirect(self, url: str) -> None:
        """Break all connections, and forward new ones to the host and port of this URL."""
        self.cut()
        self._target = _host_and_port(url)
        self.mend()

    def cut(self) -> None:
        """Break all connections, and refuse new ones until `mend`."""
        self._run(self._cut())

    def mend(self) -> None:
        """Accept connections again, on the same port."""
        self._run(self._listen())

    def hold(self, *directions: str) -> None:
        """Hold back REQUESTS, ANSWERS or both until `release`. Nothing is closed or lost."""
        self._run(self._let_flow(directions, False))

    def hold_requests_with(self, text: bytes) -> None:
        """Hold back each request that contains `text`, and what follows it on its connection, until `release`."""
        self._run(self._let_flow((SELECTED,), False))
        self._is_held = lambda piece: text in piece

    def release(self) -> None:
        """Forward what was held back, and everything after it."""
        self._is_held = None
        self._run(self._let_flow((), True))

    def delay(self, seconds: float) -> None:
        """Delay each piece of an answer by this time."""
        self._delay_s = seconds

    def drop_answers_after(self, is_fatal: Callable[[bytes], bool] | None) -> None:
        """Pass on a request for which `is_fatal` is true, and break its connection when the server answers.

        `is_fatal` is called for each piece that a client sends, on arrival, on the proxy's thread. None ends this.
        """
        self._is_fatal = is_fatal

    def drop_request(self, is_dropped: Callable[[bytes], bool]) -> None:
        """Break the connection of the next request for which `is_dropped` is true, before it is passed on."""
        self._is_dropped = is_dropped

    def close(self) -> None:
        """Break all connections for good."""
        self.cut()
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reserved.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _let_flow(self, directions: tuple[str, ...], flows: bool) -> None:
        for direction in directions or self._flows:
            self._flows[direction].set() if flows else self._flows[direction].clear()

    async def _listen(self) -> None:
        if self._listener is None:
            listener = socket.create_server(("127.0.0.1", self.port), backlog=1024)
            # asyncio does so for its own listeners alone: small pieces would wait for an acknowledgement, 40 ms each.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._listener = await asyncio.start_server(self._accept, sock=listener)

    async def _cut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        broken = [task for task in self._connections if task.cancel()]
        await asyncio.gather(*broken, return_exceptions=True)
        await asyncio.sleep(0)  # The loop closes the sockets in its next iteration.

    async def _end(self) -> None:
        """End all handlers, also of connections accepted just before the listener closed."""
        await end_other_tasks()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._listener is None:
            writer.transport.abort()
            return
        task = self._loop.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        writers, is_doomed = [writer], asyncio.Event()
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            writers.append(server_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self.forward_requests(reader, server_writer, is_doomed))
                both.create_task(self.forward_answers(server_reader, writer, is_doomed))
        except* EOFError:
            for ended in writers:
                ended.close()
        except* OSError:
            pass
        finally:
            for left in writers:
                if not left.is_closing():
                    left.transport.abort()

    async def forward_requests(self, reader: StreamReader, writer: StreamWriter, is_doomed: asyncio.Event) -> None:
        """Forward until the client ends; OSError breaks the connection, EOFError ends it after what was sent.

        `is_doomed` is shared with `forward_answers` of the same connection.
        """
        while piece := await reader.read(_PIECE_BYTES):
            await self._flows[REQUESTS].wait()
            if self._is_held is not None and self._is_held(piece):
                await self._flows[SELECTED].wait()
            if self._is_dropped is not None and self._is_dropped(piece):
                self._is_dropped = None
                raise ConnectionAbortedError
            if self._is_fatal is not None and self._is_fatal(piece):
                is_doomed.set()
            writer.write(piece)
            await writer.drain()
        raise EOFError

    async def forward_answers(self, reader: StreamReader, writer: StreamWriter, is_doomed: asyncio.Event) -> None:
        """Forward until the server ends; otherwise like `forward_requests`."""
        while piece := await reader.read(_PIECE_BYTES):
            if is_doomed.is_set():
                self.dropped += 1
                raise ConnectionAbortedError
            await asyncio.sleep(self._delay_s)
            await self._flows[ANSWERS].wait()
            writer.write(piece)
            await writer.drain()
        raise EOFError


def proxy(url: str) -> contextlib.closing[Proxy]:
    """Start a proxy before the host and port of that URL."""
    return contextlib.closing(Proxy(url))


def _host_and_port(url: str) -> tuple[str, int]:
    target = urlsplit(url)
    assert target.hostname is not None
    assert target.port is not None
    return target.hostname, target.port
