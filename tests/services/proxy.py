"""A TCP proxy between the product and one of its stores, which injects faults of the network."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.services.managed_program import at_port
from tests.services.threaded_server import ThreadedServer

REQUESTS, ANSWERS, SELECTED = "requests", "answers", "selected requests"
_PIECE_BYTES = 1 << 16


class Proxy(ThreadedServer):
    """Forwards connections from `port` of 127.0.0.1 to the host and port of a URL, until it is closed."""

    def __init__(self, url: str) -> None:
        self.dropped = 0  # answers dropped by `drop_answers_after`
        self._target = _host_and_port(url)
        self._flows = {direction: asyncio.Event() for direction in (REQUESTS, ANSWERS, SELECTED)}
        self._delay_s = 0.0
        self._is_fatal: Callable[[bytes], bool] | None = None
        self._is_dropped: Callable[[bytes], bool] | None = None
        self._is_held: Callable[[bytes], bool] | None = None
        super().__init__()
        self.release()

    def url(self, url: str) -> str:
        """Return the same URL through this proxy."""
        return at_port(url, self.port)

    def redirect(self, url: str) -> None:
        """Break all connections, and forward new ones to the host and port of this URL."""
        self.cut()
        self._target = _host_and_port(url)
        self.mend()

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

    async def _let_flow(self, directions: tuple[str, ...], flows: bool) -> None:
        for direction in directions or self._flows:
            self._flows[direction].set() if flows else self._flows[direction].clear()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        is_doomed, has_ended = asyncio.Event(), False
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self.forward_requests(reader, server_writer, is_doomed))
                both.create_task(self.forward_answers(server_reader, writer, is_doomed))
        except* EOFError:
            server_writer.close()
            has_ended = True
        except* OSError:
            pass
        finally:
            if not server_writer.is_closing():
                server_writer.transport.abort()
        if not has_ended:
            raise ConnectionAbortedError

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


def _host_and_port(url: str) -> tuple[str, int]:
    target = urlsplit(url)
    assert target.hostname is not None
    assert target.port is not None
    return target.hostname, target.port
