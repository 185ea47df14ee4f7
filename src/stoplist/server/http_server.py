"""The HTTP server around uvicorn's protocol, from listening to the last answer after SIGTERM.

uvicorn's own `Server` is not used: it exits the process if a port is taken, raises a signal again after it has
stopped, and lets idle connections delay the stop.
Source: docs/interface.md section D1, Settings (DRAIN_S) and HTTPS.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from uvicorn import Config

from stoplist.server.bounds import Bounds
from stoplist.server.http_protocol import WireProtocol
from stoplist.server.listening_sockets import (
    BACKLOG,
    LISTEN_SETTINGS,
    drop_new_connections,
    has_unaccepted,
    open_sockets,
)
from stoplist.server.sweep import Sweep
from stoplist.server.tls_transport import SecureTransport
from stoplist.server.wire_state import OnOwnAnswer, WireState
from stoplist.source import Network, is_within, read_address

_LOG = logging.getLogger(__name__)
# How long an idle client may take to notice the disconnection; many do not look before their next request.
_LINGER_S = 0.5
# How long to wait for the first request of a new connection, which a client might not be able to send again.
_UNUSED_S = 0.5
# How long to wait for the supervisor to say that all workers stop, and for the connections that the kernel completed.
_WHOLE_STOP_S, _UNACCEPTED_S = 0.25, 1.0
_POLL_S = 0.02
# On every answer, also those that the application did not make. Not includeSubDomains: other hosts are not ours.
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")
_CUT_OFF_S = 1.0

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
    whole_stop: asyncio.Event | None = None,
    force: asyncio.Event | None = None,
    sockets: list[socket.socket] | None = None,
    notice_s: Callable[[], float] = lambda: 0.0,
    on_started: OnStarted | None = None,
    on_own_answer: OnOwnAnswer | None = None,
    bad_request_code: Callable[[str], str] | None = None,
    bounds: Bounds | None = None,
    trusted_proxies: Sequence[Network] = (),
    settings_text: str = LISTEN_SETTINGS,
    is_https_only: bool = False,
) -> None:
    """Serve the ASGI application until `stop` is set, and return once every connection is closed.

    Requests accepted before the stop have `drain_s` seconds, or until `force` is set, to be answered; then they are cut
    off. For the first `notice_s()` of these seconds connections are still accepted, each for one request, so that a
    load balancer can learn of the stop. `sockets` are listening already; without them, `host` and `port` are opened.
    `whole_stop` is set when all processes that accept on these sockets stop; without it, this one is alone.
    `on_started` is called with the addresses once connections are accepted; for the other callbacks see `WireState`.
    `is_https_only` tells browsers to use nothing but HTTPS for this host (RFC 6797).
    SettingsError, naming the settings in `settings_text`, if the server cannot listen.
    """
    sockets = sockets or open_sockets(host, port, settings_text)
    state = WireState(
        bounds or Bounds(),
        now_s=asyncio.get_running_loop().time(),
        bad_request_code=bad_request_code or _bad_request,
        on_own_answer=on_own_answer or _ignore_answer,
        fixed_headers=[_NO_SNIFFING, _HTTPS_ONLY] if is_https_only else [_NO_SNIFFING],
        is_trusted=lambda peer: is_within(read_address(peer), trusted_proxies),
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
        await server.stop_accepting(sockets, whole_stop or stop)
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


class _Server:
    """The listening sockets and connections of one `serve_http`."""

    def __init__(self, app: Application, state: WireState) -> None:
        self._state = state
        self._config = _config(app)
        self._listeners: list[asyncio.Server] = []
        # Each is done once a listener and all its connections are closed.
        self._closings: list[asyncio.Future[None]] = []
        self._sweep = Sweep(state)

    async def open(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Start to accept connections."""
        self._sweep.date_answers()
        loop = asyncio.get_running_loop()
        for sock in sockets:
            listener = await loop.create_server(partial(self._new_connection, tls), sock=sock, backlog=BACKLOG)
            self._listeners.append(listener)
            self._closings.append(asyncio.ensure_future(listener.wait_closed()))

    async def sweep_until(self, stop: asyncio.Event) -> None:
        """Enforce the deadlines of connections and renew the `Date` header until `stop` is set."""
        while not await _is_set_within(stop, self._state.bounds.sweep_s):
            self._sweep.run()

    async def give_notice(self, notice_s: float, force: asyncio.Event) -> None:
        """Accept connections for another `notice_s` seconds, or until `force`; close each after its next answer."""
        self._state.is_leaving = True
        for connection in tuple(self._state.connections):
            cast("WireProtocol", connection).leave()
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + notice_s
        while (left_s := ends_s - loop.time()) > 0:
            if await _is_set_within(force, min(left_s, self._state.bounds.sweep_s)):
                break
            self._sweep.run()

    async def stop_accepting(self, sockets: list[socket.socket], whole_stop: asyncio.Event) -> None:
        """Close the listeners, once each connection that the kernel has completed is accepted, here or elsewhere."""
        if await _is_set_within(whole_stop, _WHOLE_STOP_S):
            for sock in sockets:
                drop_new_connections(sock)
            loop = asyncio.get_running_loop()
            ends_s = loop.time() + _UNACCEPTED_S
            while any(map(has_unaccepted, sockets)) and loop.time() < ends_s:  # noqa: ASYNC110
                await asyncio.sleep(0)
        self._close_listeners()
        await asyncio.sleep(0)  # the protocol of an accepted connection is made in the next turn

    async def drain(self, ends_s: float, force: asyncio.Event) -> None:
        """Refuse new requests, and wait for the accepted ones until `ends_s` or `force`."""
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
        if ending := [*tasks, *self._closings]:
            await asyncio.wait(ending, timeout=_CUT_OFF_S)
        for closing in self._closings:
            closing.cancel()
        self._closings.clear()

    def _new_connection(self, tls: ssl.SSLContext | None) -> asyncio.Protocol:
        protocol = WireProtocol(self._config, self._state, {})
        return protocol if tls is None else SecureTransport(tls, protocol)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()


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


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


def _bad_request(_path: str) -> str:
    return "bad_request"


def _ignore_answer(_request_id: str, _status: int, _peer: str | None) -> None:
    pass
