"""The work of a server process beside requests: its chores, the work on imports, and the delivery of notices.

Source: docs/interface.md sections D10 (metrics), D12 (On the pages), D14 (Propagation), D16.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from stoplist import chores
from stoplist.proof.behind_notices import notify_of_keys_behind
from stoplist.rights.retention import Retention
from stoplist.server.background_notices import BackgroundNotices
from stoplist.server.import_work import BackgroundImports
from stoplist.server.measurement import measure
from stoplist.settings import Settings
from stoplist.unsubscribes.model import OptOutStores
from stoplist.web.metrics import CHORE
from stoplist.web.parts import Parts


@asynccontextmanager
async def background_work(
    settings: Settings,
    parts: Parts,
    *,
    stop: asyncio.Event,
    load_pages: Callable[[], Awaitable[None]],
    renew_certificate: Callable[[], object],
) -> AsyncIterator[None]:
    """Work in the background within the context; work on imports ends as soon as `stop` is set."""
    imports = BackgroundImports(
        parts.database,
        parts.clock,
        max_mb=settings.import_max_mb,
        history_days=settings.history_days,
        on_ended=parts.metrics.count_import,
    )
    parts.metrics.show_imports(lambda: imports.running)
    notices = BackgroundNotices(settings, parts)

    async def load_pages_and_imports() -> None:
        await load_pages()
        await imports.load()

    propagation = _Propagation(settings, parts)
    table = chores.chores(
        database=parts.database,
        clock=parts.clock,
        limiter=parts.limiter,
        usage=parts.usage,
        positions=parts.positions,
        link_events=parts.link_events,
        renew_certificate=renew_certificate,
        load_pages=load_pages_and_imports,
        work_on_imports=imports.take_waiting,
        delete_old_uploads=imports.delete_old_uploads,
        deliver_notices=notices.deliver_waiting,
        delete_old_notices=notices.clean_up,
        watch_store=notices.watch_store,
        measure_propagation=propagation.measure,
        measure_installation=partial(_measure_installation, settings, parts),
        notify_of_keys_behind=propagation.notify_of_keys_behind,
        retention=Retention(
            history_days=settings.history_days,
            audit_days=settings.audit_days,
            propagation_hours=settings.propagation_hours,
        ),
    )
    async with imports.ended_at(stop), notices.ended():
        with chores.running(table, on_defect=partial(parts.metrics.count_defect, CHORE)):
            yield


class _Propagation:
    """The two chores that ask how far the readers of the feeds are."""

    def __init__(self, settings: Settings, parts: Parts) -> None:
        self._settings, self._parts = settings, parts
        self._stores = OptOutStores(database=parts.database, clock=parts.clock, secret_keys=parts.secret_keys)

    async def measure(self) -> None:
        if self._settings.metrics_listen is not None:  # else nobody asks
            await self._parts.worst_keys.measure(self._stores, hours=self._parts.propagation_hours)

    async def notify_of_keys_behind(self) -> None:
        if self._settings.notice_url is not None or self._settings.smtp_server is not None:  # else nobody is told
            await notify_of_keys_behind(self._stores, hours=self._parts.propagation_hours)


async def _measure_installation(settings: Settings, parts: Parts) -> None:
    if settings.metrics_listen is not None:
        await measure(settings, parts.database, parts.metrics.measured, now_ms=parts.clock.now_ms())
