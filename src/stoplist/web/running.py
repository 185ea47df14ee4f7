"""A server from start to stop: what is opened in which order, and put away in the other.

Source: docs/interface.md section D1.
"""

import asyncio
import gc
import logging
import resource
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from stoplist import chores, log
from stoplist.clock import Clock
from stoplist.db import Database, schema
from stoplist.db.opening import make_folder, open_database, served_alone, sqlite_path
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.limits.memory import MemoryLimiter
from stoplist.oauth.usage import Usage
from stoplist.secret_key import secret_keys
from stoplist.settings import Settings
from stoplist.web.app import Parts, build_app
from stoplist.web.exchange import bad_request_code
from stoplist.web.metrics import Metrics
from stoplist.web.server import serve_http, serve_plain, stop_on_signals
from stoplist.web.tls import CertificateWatch, ensure_development_certificate, server_context

_LOG = logging.getLogger(__name__)


AfterStart = Callable[[Database, Clock], Awaitable[None]]


async def serve(settings: Settings, *, after_start: AfterStart | None = None) -> None:
    """Serve until a signal says stop; then finish what is in flight and put everything away.

    `after_start` is done once connections are accepted. SettingsError when the server cannot start.
    """
    make_folder(settings.database_url)
    _allow_many_connections()
    stop, force = asyncio.Event(), asyncio.Event()
    with served_alone(settings.database_url), stop_on_signals(stop, force):
        async with _database(settings) as database:
            await _serve(settings, database, stop, force, after_start)


async def _serve(
    settings: Settings,
    database: Database,
    stop: asyncio.Event,
    force: asyncio.Event,
    after_start: AfterStart | None,
) -> None:
    clock = Clock()
    await chores.follow_clock(clock, database)
    keys = secret_keys(settings)
    tls, renew_certificate = _tls(settings, clock)
    limiter, usage, metrics = MemoryLimiter(clock), Usage(), Metrics(database)
    parts = Parts(
        database=database,
        clock=clock,
        limiter=limiter,
        usage=usage,
        metrics=metrics,
        secret_keys=keys,
        base_url=settings.base_url,
    )
    table = chores.chores(
        database=database, clock=clock, limiter=limiter, usage=usage, renew_certificate=renew_certificate
    )
    started_work: list[asyncio.Task[None]] = []

    def started(addresses: list[tuple[str, int]]) -> None:
        _LOG.info("Serving", extra={"fields": {"address": addresses[0], "base_url": settings.base_url}})
        if after_start is not None:
            started_work.append(asyncio.create_task(_after_start(after_start, database, clock)))
        # What lives now lives as long as the process: it need not be looked through again.
        gc.collect()
        gc.freeze()

    def own_answer(request_id: str, status: int) -> None:
        metrics.wire_answered(status)
        log.request_line(
            at_ms=clock.now_ms(),
            request_id=request_id,
            client_id=None,
            method="*",
            path="/*",
            status=status,
            duration_ms=0.0,
        )

    try:
        with chores.running(table):
            async with _metrics_listener(settings, metrics, stop):
                await serve_http(
                    build_app(parts, trusted_proxies=settings.trusted_proxies),
                    host=settings.host,
                    port=settings.port,
                    tls=tls,
                    drain_s=settings.drain_s,
                    stop=stop,
                    force=force,
                    on_started=started,
                    on_own_answer=own_answer,
                    bad_request_code=bad_request_code,
                )
    finally:
        await _write_use(usage, database)
    _LOG.info("Stopped")


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Database]:
    """The database of these settings, with the schema of this release."""
    database = await open_database(
        settings.database_url,
        create=True,
        pool_size=settings.database_pool,
        prepared=settings.database_prepared,
    )
    try:
        if sqlite_path(settings.database_url) is not None:
            done = await schema.migrate(database, environment=settings.environment, now_ms=Clock().now_ms())
            if done.copy:
                _LOG.info("The schema was brought up to date", extra={"fields": {"copy": done.copy}})
        else:
            await _check_schema(settings, database)
        yield database
    finally:
        await database.close()


async def _check_schema(settings: Settings, database: Database) -> None:
    known = await schema.read(database)
    if known is None:
        raise SettingsError("The PostgreSQL database is empty: run `stoplist migrate` first.")
    schema.check(known, environment=settings.environment, newest=schema.load_migrations()[-1].number)


def _tls(settings: Settings, clock: Clock) -> tuple[ssl.SSLContext | None, Callable[[], object]]:
    """The TLS of the server, None where proxies end it; and what takes up a renewed certificate."""
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
async def _metrics_listener(settings: Settings, metrics: Metrics, stop: asyncio.Event) -> AsyncIterator[None]:
    """While this lasts the metrics are served at their own address, if one is set."""
    if settings.metrics_listen is None:
        yield
        return
    host, port = settings.metrics_listen
    listening = asyncio.Event()
    task = asyncio.create_task(
        serve_plain(metrics.page, host=host, port=port, stop=stop, on_started=lambda _: listening.set())
    )
    waiting = asyncio.create_task(listening.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()  # raises why it could not listen
    try:
        yield
    finally:
        stop.set()
        await task


def _allow_many_connections() -> None:
    """Each connection takes a file descriptor; the usual soft limit of 1024 is for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _after_start(work: AfterStart, database: Database, clock: Clock) -> None:
    try:
        await work(database, clock)
    except Exception:
        _LOG.exception("What should follow the start failed")


async def _write_use(usage: Usage, database: Database) -> None:
    try:
        await usage.flush(database)
    except StoreUnavailable as error:
        _LOG.error("The use of keys since the last minute is lost", extra={"fields": {"why": error.text}})
