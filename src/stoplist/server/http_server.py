"""The HTTP server around uvicorn's protocol, from listening to the last answer after SIGTERM.

uvicorn's own `Server` is not used: it exits the process if a port is taken, raises a signal again after it has
stopped, and lets idle connections delay the stop.
Source: docs/interface.md section D1, Settings (DRAIN_S) and HTTPS.
"""

import asyncio
import errno
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any, cast

from uvicorn import Config

from stoplist.errors import SettingsError
from stoplist.server.bounds import Bounds
from stoplist.server.http_protocol import WireProtocol
from stoplist.server.wire_state import OnOwnAnswer, WireState

_LOG = logging.getLogger(__name__)
LISTEN_SETTINGS = "STOPLIST_HOST and STOPLIST_PORT"
_BACKLOG = 2048
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_HANDSHAKE_S = 10.0
# How long an idle client may take to notice the disconnection; many do not look before their next request.
_LINGER_S = 0.5
# How long to wait for the first request of a new connection, which a client might not be able to send again.
_UNUSED_S = 0.2
_POLL_S = 0.02
_CUT_OFF_S = 1.0
_REMEDIES = {
    errno.EADDRINUSE: "another process listens there already: stop it, or choose another port",
    errno.EACCES: "this user may not use it: choose a port of 1024 or above, or grant CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "this machine has no such address: use 127.0.0.1 for local clients, 0.0.0.0 for all networks",
}

Application = Callable[..., Any]
OnStarted = Callable[[list[tuple[str, int]]], None]


async def serve_http(
    app: Application,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    drain_s: float,
    stop: asyncio.Event,
    force: asyncio.Event | None = None,
    sockets: list[socket.socket] | None = None,
    notice_s: Callable[[], float] = lambda: 0.0,
    on_started: OnStarted | None = None,
    on_own_answer: OnOwnAnswer | None = None,
    bad_request_code: Callable[[str], str] | None = None,
    bounds: Bounds | None = None,
    settings_text: str = LISTEN_SETTINGS,
) -> None:
    """Serve the ASGI application until `stop` is set, and return once every connection is closed.

    Requests accepted before the stop have `drain_s` seconds, or until `force` is set, to be answered; then they are cut
    off. For the first `notice_s()` of these seconds connections are still accepted, each for one request, so that a
    load balancer can learn of the stop. `sockets` are listening already; without them, `host` and `port` are opened.
    `on_started` is called with the addresses once connections are accepted; for the other callbacks see `WireState`.
    SettingsError, naming the settings in `settings_text`, if the server cannot listen.
    """
    sockets = sockets or listen(host, port, settings_text)
    state = WireState(
        bounds or Bounds(),
        now_s=asyncio.get_running_loop().time(),
        bad_request_code=bad_request_code or _bad_request,
        on_own_answer=on_own_answer or _ignore_answer,
    )
    addresses = [sock.getsockname()[:2] for sock in sockets]
    server = _Server(app, state)
    try:
        await server.open(sockets, tls)
        if on_started is not None:
            on_started(addresses)
        await server.sweep_until(stop)
        force = force or asyncio.Event()
        ends_s = asyncio.get_running_loop().time() + drain_s
        await server.give_notice(notice_s(), force)
        await server.drain(ends_s, force)
    finally:
        await server.cut_off()
        for sock in sockets:
            sock.close()


async def serve_plain(
    app: Application, *, host: str, port: int, stop: asyncio.Event, on_started: OnStarted | None = None
) -> None:
    """Serve the metrics over plain HTTP until `stop`, which the main server shares, is set."""
    await serve_http(
        app,
        host=host,
        port=port,
        tls=None,
        drain_s=1.0,
        stop=stop,
        on_started=on_started,
        settings_text="STOPLIST_METRICS_LISTEN",
    )


@contextmanager
def stop_on_signals(stop: asyncio.Event, force: asyncio.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT within the context, and `force` on a second SIGINT.

    Stay in the context until all resources are released: a signal after it would end the process in the middle of
    that. For the main thread only, inside the running loop.
    """
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if number == signal.SIGINT and stop.is_set():
            force.set()
        stop.set()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


class _Server:
    """The listening sockets and connections of one `serve_http`."""

    def __init__(self, app: Application, state: WireState) -> None:
        self._state = state
        self._config = _config(app)
        self._listeners: list[asyncio.Server] = []

    async def open(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Start to accept connections."""
        self._date_answers()
        loop = asyncio.get_running_loop()
        for sock in sockets:
            listener = await loop.create_server(
                self._new_connection,
                sock=sock,
                ssl=tls,
                backlog=_BACKLOG,
                ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
            )
            self._listeners.append(listener)

    async def sweep_until(self, stop: asyncio.Event) -> None:
        """Enforce the deadlines of connections and renew the `Date` header until `stop` is set."""
        while not await _is_set_within(stop, self._state.bounds.sweep_s):
            self._sweep()

    async def give_notice(self, notice_s: float, force: asyncio.Event) -> None:
        """Accept connections for `notice_s` more or until `force`, and close every connection after its next answer."""
        self._state.is_leaving = True
        for connection in tuple(self._state.connections):
            cast("WireProtocol", connection).leave()
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + notice_s
        while (left_s := ends_s - loop.time()) > 0:
            if await _is_set_within(force, min(left_s, self._state.bounds.sweep_s)):
                break
            self._sweep()

    async def drain(self, ends_s: float, force: asyncio.Event) -> None:
        """Refuse new connections and requests, and wait for the accepted ones until `ends_s` or `force`."""
        self._close_listeners()
        self._state.is_draining = True
        connections = cast("set[WireProtocol]", self._state.connections)
        unused = {connection for connection in connections if connection.is_unused}
        idle = _shut_down(connections - unused)
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        lingers_until_s, unused_until_s = min(now_s + _LINGER_S, ends_s), now_s + _UNUSED_S
        while (self._state.tasks or connections - idle) or (connections and loop.time() < lingers_until_s):
            if loop.time() >= ends_s or await _is_set_within(force, _POLL_S):
                break
            if unused and loop.time() >= unused_until_s:
                idle |= _shut_down(unused)
                unused.clear()

    async def cut_off(self) -> None:
        """Close every connection and cancel every unfinished request. May be called twice."""
        self._close_listeners()
        tasks = set(self._state.tasks)
        if tasks:
            _LOG.warning("Stopped with %d unfinished requests, which were cut off.", len(tasks))
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CUT_OFF_S)

    def _sweep(self) -> None:
        self._date_answers()
        self._state.now_s = now_s = asyncio.get_running_loop().time()
        for connection in tuple(self._state.connections):
            cast("WireProtocol", connection).enforce_bounds(now_s)

    def _new_connection(self) -> WireProtocol:
        return WireProtocol(self._config, self._state, {})

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _date_answers(self) -> None:
        # One header value for all answers until the next sweep (RFC 9110 section 6.6.1).
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode("ascii"))]


def _shut_down(connections: "set[WireProtocol]") -> "set[WireProtocol]":
    """Let these connections accept no further request, and return those that were idle and are closing."""
    for connection in tuple(connections):
        connection.shutdown()
    return {connection for connection in connections if connection.transport.is_closing()}


def _config(app: Application) -> Config:
    """Return the configuration of uvicorn's protocol, which neither configures logging nor trusts proxies."""
    config = Config(
        app,
        loop="none",
        http=WireProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    return config


def listen(host: str, port: int, settings_text: str = LISTEN_SETTINGS) -> list[socket.socket]:
    """Open listening sockets on every address of `host`, all on one port; port 0 chooses a free one.

    SettingsError, naming the settings in `settings_text`, if that is not possible.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            actual_port = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_listening_socket(family, (address, actual_port), is_v6_only=host != "::"))
    except OSError as error:
        for sock in sockets:
            sock.close()
        remedy = _REMEDIES.get(error.errno or 0, f"{error.strerror or error}")
        raise SettingsError(f"Cannot listen on {host} port {port} ({settings_text}): {remedy}.") from None
    return sockets


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in infos))


def _listening_socket(family: socket.AddressFamily, address: tuple[str, int], *, is_v6_only: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_v6_only)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


def _bad_request(_path: str) -> str:
    return "bad_request"


def _ignore_answer(_request_id: str, _status: int) -> None:
    pass
