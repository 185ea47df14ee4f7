"""The life of a server process: opens its resources in order, serves, and closes them in reverse.

Source: docs/interface.md section D1.
"""

import asyncio
import gc
import logging
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import uvloop

from stoplist import log
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.opening import create_folder, single_server_lock
from stoplist.server.background_work import background_work
from stoplist.server.bounds import Bounds
from stoplist.server.http_server import serve_http
from stoplist.server.metrics_listener import metrics_listener
from stoplist.server.opening import open_parts
from stoplist.server.stop_signals import stop_on_signals
from stoplist.server.tls import server_tls
from stoplist.settings import Settings
from stoplist.source import read_address
from stoplist.web.app import build_app
from stoplist.web.metrics import Metrics
from stoplist.web.parts import Parts
from stoplist.web.readiness import Readiness
from stoplist.web.request_context import bad_request_code

_LOG = logging.getLogger(__name__)

OnReady = Callable[[Database, Clock], Awaitable[None]]


class ServerProcess:
    """The state that a server process shares with the code that started it.

    `sockets` are listening already; without them the process creates its own and serves its own metrics. `stop` stops
    this process, `whole_stop` says that all processes with these sockets stop, `force` cuts the stop short. `on_probe`
    is called when the readiness of this process was asked for, `on_started` once connections are accepted. `metrics`
    is None until the database is open.
    """

    def __init__(
        self,
        *,
        sockets: list[socket.socket] | None = None,
        on_probe: Callable[[], None] = lambda: None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        self.sockets, self.on_started = sockets, on_started
        self.stop, self.force = asyncio.Event(), asyncio.Event()
        self.whole_stop = self.stop if sockets is None else asyncio.Event()
        self.readiness = Readiness(self.stop, on_probe=on_probe)
        self.metrics: Metrics | None = None
        self.tasks: list[asyncio.Task[None]] = []  # the loop itself keeps no reference


def run_loop(settings: Settings, work: Coroutine[Any, Any, None]) -> None:
    """Run a server process to its end: configure the log, and run `work` on an event loop."""
    log.configure(settings.log_format)
    # Bounds how long a thread that returns from disk I/O waits for the interpreter; the default is ten times as long.
    sys.setswitchinterval(0.0005)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
    finally:
        log.flush()


async def serve(settings: Settings, *, on_ready: OnReady | None = None) -> None:
    """Serve in this process alone until a signal says stop; `on_ready` runs once connections are accepted.

    SettingsError if another server has the same SQLite file open, or if the server cannot start.
    """
    process = ServerProcess()
    with stop_on_signals(process.stop, process.force):
        create_folder(settings.database_url)
        with single_server_lock(settings.database_url):
            await run_server(process, settings, on_ready=on_ready)


async def run_server(process: ServerProcess, settings: Settings, *, on_ready: OnReady | None = None) -> None:
    """Serve until `process.stop` is set; then finish open requests and release every resource.

    SettingsError if the server cannot start.
    """
    _allow_many_connections()
    async with open_parts(settings, process.readiness, is_worker=process.sockets is not None) as parts:
        await _serve(process, settings, parts, on_ready)
    _LOG.info("Stopped" if process.sockets is None else "A worker has stopped")


async def _serve(process: ServerProcess, settings: Settings, parts: Parts, on_ready: OnReady | None) -> None:
    """Serve requests, with the background work and the metrics listener beside, until `process.stop` is set."""
    tls, renew_certificate = server_tls(settings, parts.clock)
    process.metrics = parts.metrics
    app = build_app(parts, trusted_proxies=settings.trusted_proxies)
    process.tasks.append(asyncio.create_task(parts.held.end_at(process.stop)))
    async with (
        _own_metrics(process, settings, parts.metrics),
        background_work(
            settings, parts, stop=process.stop, load_pages=app.load_pages, renew_certificate=renew_certificate
        ),
    ):
        await serve_http(
            app.asgi,
            host=settings.host,
            port=settings.port,
            tls=tls,
            drain_s=settings.drain_s,
            stop=process.stop,
            whole_stop=process.whole_stop,
            force=process.force,
            sockets=process.sockets,
            notice_s=lambda: process.readiness.notice_s(settings.drain_s),
            on_started=partial(_announce_start, process, parts, on_ready),
            on_own_answer=partial(_account_protocol_answer, parts),
            bad_request_code=bad_request_code,
            is_https_only=settings.environment == "production",
            bounds=Bounds(connections=settings.connections, connections_per_source=settings.connections_per_source),
            trusted_proxies=settings.trusted_proxies,
        )


def _announce_start(
    process: ServerProcess, parts: Parts, on_ready: OnReady | None, addresses: list[tuple[str, int]]
) -> None:
    message = "Serving" if process.sockets is None else "A worker serves"
    _LOG.info(message, extra={"fields": {"address": addresses[0], "base_url": parts.base_url}})
    if on_ready is not None:
        process.tasks.append(asyncio.create_task(_run_on_ready(on_ready, parts.database, parts.clock)))
    process.on_started()
    # The objects that exist now live as long as the process: exempt them from garbage collection.
    gc.collect()
    gc.freeze()


def _account_protocol_answer(parts: Parts, request_id: str, status: int, peer: str | None) -> None:
    """Count and log an answer that the HTTP layer gave before the application saw a request."""
    parts.metrics.count_protocol_answer(status)
    log.log_request(
        at_ms=parts.clock.now_ms(),
        request_id=request_id,
        client_id=None,
        method="*",
        path="/*",
        status=status,
        duration_ms=0.0,
        source_ip=str(read_address(peer or "") or "unknown"),
    )


def _own_metrics(process: ServerProcess, settings: Settings, metrics: Metrics) -> AbstractAsyncContextManager[None]:
    """Serve the metrics of a single process; those of a worker are served by its supervisor."""
    return metrics_listener(settings, metrics.page, process.stop) if process.sockets is None else nullcontext()


def _allow_many_connections() -> None:
    """Raise the soft limit of file descriptors, one per connection; the usual 1024 is for programs with select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run_on_ready(work: OnReady, database: Database, clock: Clock) -> None:
    try:
        await work(database, clock)
    except Exception:
        _LOG.exception("A task that follows the start failed")
