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
from stoplist.db import Database
from stoplist.db.opening import create_folder, single_server_lock
from stoplist.errors import StoreUnavailable
from stoplist.limits.opening import open_limiter
from stoplist.links.events import LinkEvents
from stoplist.links.key_secrets import renew_link_keys
from stoplist.notices.sealed_links import renew_sealed_links
from stoplist.oauth.usage import Usage
from stoplist.proof.behind_notices import notify_of_keys_behind
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.positions import Positions
from stoplist.proof.worst_keys import WorstKeys
from stoplist.rights.retention import Retention
from stoplist.secret_key import secret_keys
from stoplist.server.background_notices import BackgroundNotices
from stoplist.server.bounds import Bounds
from stoplist.server.http_server import serve_http, serve_plain, stop_on_signals
from stoplist.server.import_work import BackgroundImports
from stoplist.server.measurement import measure
from stoplist.server.start_checks import check_missing_key, check_nodes, open_checked
from stoplist.server.tls import CertificateWatch, ensure_development_certificate, server_context
from stoplist.settings import Settings
from stoplist.source import read_address
from stoplist.staff.totp_secrets import renew_encryption
from stoplist.unsubscribes.model import OptOutStores
from stoplist.web.app import build_app
from stoplist.web.metrics import CHORE, Metrics, metrics_address
from stoplist.web.parts import Parts
from stoplist.web.readiness import Readiness
from stoplist.web.request_context import AsgiApp, bad_request_code

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
    async with _opened_parts(process, settings) as parts:
        await _serve(process, settings, parts, on_ready)
    _LOG.info("Stopped" if process.sockets is None else "A worker has stopped")


@asynccontextmanager
async def _opened_parts(process: ServerProcess, settings: Settings) -> AsyncIterator[Parts]:
    """Open what the application is made of; at the end write what was only noted, and close it all."""
    async with open_checked(settings) as database:
        clock, usage, link_events, positions = Clock(), Usage(), LinkEvents(), Positions()
        worst_keys = WorstKeys()
        if process.sockets is None:  # the supervisor does this for all its workers
            await check_nodes(settings, database)
            await check_missing_key(settings, database)
        keys = secret_keys(settings)
        if process.sockets is None:
            await renew_encryption(database, keys)
            await renew_link_keys(database, keys)
            await renew_sealed_links(database, keys)
        await chores.follow_clock(clock, database)
        limiter = await open_limiter(settings.limits_url, clock)
        held = HeldRequests(database)
        try:
            yield Parts(
                database=database,
                clock=clock,
                limiter=limiter,
                usage=usage,
                metrics=Metrics(database, limiter, held, worst_keys),
                readiness=process.readiness,
                held=held,
                secret_keys=keys,
                base_url=settings.base_url,
                links_base_url=settings.links_base_url,
                link_events=link_events,
                positions=positions,
                worst_keys=worst_keys,
                propagation_hours=settings.propagation_hours,
                refresh_chain_days=settings.refresh_chain_days,
                require_two_step=settings.require_two_step,
                sends_mail=settings.smtp_server is not None,
                import_max_mb=settings.import_max_mb,
                history_days=settings.history_days,
            )
        finally:
            for name, flush in (
                ("key usage", usage.flush),
                ("counts of links", link_events.flush),
                ("positions of readers", positions.flush),
            ):
                await _flush(name, flush, database)
            await limiter.close()


async def _serve(process: ServerProcess, settings: Settings, parts: Parts, on_ready: OnReady | None) -> None:
    """Serve requests, with the chores and the metrics listener beside, until `process.stop` is set."""
    tls, renew_certificate = server_tls(settings, parts.clock)
    process.metrics = parts.metrics
    app = build_app(parts, trusted_proxies=settings.trusted_proxies)
    imports = BackgroundImports(
        parts.database,
        parts.clock,
        max_mb=settings.import_max_mb,
        history_days=settings.history_days,
        on_ended=parts.metrics.count_import,
    )
    parts.metrics.show_imports(lambda: imports.running)
    notices = BackgroundNotices(settings, parts)

    async def load_pages() -> None:
        await app.load_pages()
        await imports.load()

    stores = OptOutStores(database=parts.database, clock=parts.clock, secret_keys=parts.secret_keys)

    async def measure_propagation() -> None:
        if settings.metrics_listen is not None:  # else nobody asks
            await parts.worst_keys.measure(stores, hours=parts.propagation_hours)

    async def measure_installation() -> None:
        if settings.metrics_listen is not None:
            await measure(settings, parts.database, parts.metrics.measured)

    async def tell_of_keys_behind() -> None:
        if settings.notice_url is not None or settings.smtp_server is not None:  # else nobody is told
            await notify_of_keys_behind(stores, hours=parts.propagation_hours)

    retention = Retention(
        history_days=settings.history_days,
        audit_days=settings.audit_days,
        propagation_hours=settings.propagation_hours,
    )
    table = chores.chores(
        database=parts.database,
        clock=parts.clock,
        limiter=parts.limiter,
        usage=parts.usage,
        positions=parts.positions,
        link_events=parts.link_events,
        renew_certificate=renew_certificate,
        load_pages=load_pages,
        work_on_imports=imports.take_waiting,
        delete_old_uploads=imports.delete_old_uploads,
        deliver_notices=notices.deliver_waiting,
        delete_old_notices=notices.clean_up,
        watch_store=notices.watch_store,
        measure_propagation=measure_propagation,
        measure_installation=measure_installation,
        notify_of_keys_behind=tell_of_keys_behind,
        retention=retention,
    )
    process.tasks.append(asyncio.create_task(parts.held.end_at(process.stop)))
    async with imports.ended_at(process.stop), notices.ended(), _own_metrics(process, settings, parts.metrics):
        with chores.running(table, on_defect=partial(parts.metrics.count_defect, CHORE)):
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


def server_tls(settings: Settings, clock: Clock) -> tuple[ssl.SSLContext | None, Callable[[], object]]:
    """Return the TLS context, or None if proxies terminate TLS, and a function that loads a renewed certificate."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        pair = settings.tls_cert, settings.tls_key
    elif settings.trusted_proxies:
        return None, lambda: None
    else:
        names = (urlsplit(url).hostname or "localhost" for url in (settings.base_url, settings.links_base_url))
        hosts = (settings.host, *dict.fromkeys(names))
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
    task = asyncio.create_task(
        serve_plain(metrics_address(page), host=host, port=port, stop=stop, on_started=lambda _: listening.set())
    )
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


async def _flush(name: str, flush: Callable[[Database], Awaitable[None]], database: Database) -> None:
    try:
        await flush(database)
    except StoreUnavailable as error:
        _LOG.error("What was noted in the last minute is lost", extra={"fields": {"what": name, "why": error.text}})
    except Exception:
        _LOG.exception("What was noted in the last minute is lost", extra={"fields": {"what": name}})
