"""The life of a server process: opens its resources in order, serves, and closes them in reverse.

Source: docs/interface.md section D1.
"""

import asyncio
import gc
import logging
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import uvloop

from stoplist import chores, log
from stoplist.clock import Clock
from stoplist.db import Database, schema
from stoplist.db.opening import create_folder, open_database, single_server_lock, sqlite_path
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.limits.opening import open_limiter
from stoplist.oauth.usage import Usage
from stoplist.secret_key import secret_keys
from stoplist.server.http_server import serve_http, serve_plain, stop_on_signals
from stoplist.server.tls import CertificateWatch, ensure_development_certificate, server_context
from stoplist.settings import Settings
from stoplist.web.app import Parts, build_app
from stoplist.web.metrics import Metrics
from stoplist.web.readiness import Readiness
from stoplist.web.request_context import AsgiApp, bad_request_code

_LOG = logging.getLogger(__name__)

OnReady = Callable[[Database, Clock], Awaitable[None]]


class ServerProcess:
    """The state that a server process shares with the code that started it.

    `sockets` are listening already; without them the process creates its own and serves its own metrics. `on_probe`
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
    async with _opened_parts(process, settings) as parts:
        await _serve(process, settings, parts, on_ready)
    _LOG.info("Stopped" if process.sockets is None else "A worker has stopped")


@asynccontextmanager
async def _opened_parts(process: ServerProcess, settings: Settings) -> AsyncIterator[Parts]:
    """Open what the application is made of; at the end write the key usage, and close it all."""
    async with open_checked(settings) as database:
        clock, usage = Clock(), Usage()
        await chores.follow_clock(clock, database)
        limiter = await open_limiter(settings.limits_url, clock)
        try:
            yield Parts(
                database=database,
                clock=clock,
                limiter=limiter,
                usage=usage,
                metrics=Metrics(database, limiter),
                readiness=process.readiness,
                secret_keys=secret_keys(settings),
                base_url=settings.base_url,
            )
        finally:
            await _flush_usage(usage, database)
            await limiter.close()


async def _serve(process: ServerProcess, settings: Settings, parts: Parts, on_ready: OnReady | None) -> None:
    """Serve requests, with the chores and the metrics listener beside, until `process.stop` is set."""
    tls, renew_certificate = server_tls(settings, parts.clock)
    process.metrics = parts.metrics
    table = chores.chores(
        database=parts.database,
        clock=parts.clock,
        limiter=parts.limiter,
        usage=parts.usage,
        renew_certificate=renew_certificate,
    )
    with chores.running(table):
        async with _own_metrics(process, settings, parts.metrics):
            await serve_http(
                build_app(parts, trusted_proxies=settings.trusted_proxies),
                host=settings.host,
                port=settings.port,
                tls=tls,
                drain_s=settings.drain_s,
                stop=process.stop,
                force=process.force,
                sockets=process.sockets,
                notice_s=lambda: process.readiness.notice_s(settings.drain_s),
                on_started=partial(_announce_start, process, parts, on_ready),
                on_own_answer=partial(_account_protocol_answer, parts),
                bad_request_code=bad_request_code,
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


def _account_protocol_answer(parts: Parts, request_id: str, status: int) -> None:
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
    )


@asynccontextmanager
async def open_checked(settings: Settings) -> AsyncIterator[Database]:
    """Open the database of these settings, with the schema of this release; SettingsError if it has another."""
    database = await open_database(
        settings.database_url,
        create=True,
        pool_size=settings.database_pool,
        prepared=settings.database_prepared,
    )
    try:
        if sqlite_path(settings.database_url) is not None:
            migration = await schema.migrate(database, environment=settings.environment, now_ms=Clock().now_ms())
            if migration.copy:
                _LOG.info("The schema was brought up to date", extra={"fields": {"copy": migration.copy}})
        else:
            await _check_schema(settings, database)
        yield database
    finally:
        await database.close()


async def check_limiter(settings: Settings) -> None:
    """Raise SettingsError if the URL of the limit store is wrong or the store refuses the connection."""
    await (await open_limiter(settings.limits_url, Clock())).close()


async def _check_schema(settings: Settings, database: Database) -> None:
    deployment = await schema.read(database)
    if deployment is None:
        raise SettingsError("The PostgreSQL database is empty: run `stoplist migrate` first.")
    schema.check(deployment, environment=settings.environment, newest=schema.load_migrations()[-1].number)


def server_tls(settings: Settings, clock: Clock) -> tuple[ssl.SSLContext | None, Callable[[], object]]:
    """Return the TLS context, or None if proxies terminate TLS, and a function that loads a renewed certificate."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        pair = settings.tls_cert, settings.tls_key
    elif settings.trusted_proxies:
        return None, lambda: None
    else:
        hosts = (settings.host, urlsplit(settings.base_url).hostname or "localhost")
        pair = ensure_development_certificate(settings.data_dir, hosts, clock.now_ms())
    context = server_context(*pair)
    return context, CertificateWatch(context, *pair).check


@asynccontextmanager
async def metrics_listener(settings: Settings, page: AsgiApp, stop: asyncio.Event) -> AsyncIterator[None]:
    """Serve the metrics at their own address, if one is set, for the duration of the context."""
    if settings.metrics_listen is None:
        yield
        return
    host, port = settings.metrics_listen
    listening = asyncio.Event()
    task = asyncio.create_task(serve_plain(page, host=host, port=port, stop=stop, on_started=lambda _: listening.set()))
    waiting = asyncio.create_task(listening.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()  # raises if it could not listen
    try:
        yield
    finally:
        stop.set()
        await task


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


async def _flush_usage(usage: Usage, database: Database) -> None:
    try:
        await usage.flush(database)
    except StoreUnavailable as error:
        _LOG.error("The key usage of the last minute is lost", extra={"fields": {"why": error.text}})
