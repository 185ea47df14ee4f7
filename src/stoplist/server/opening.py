"""The parts that the application of a server process is built from: opened in order, and closed in reverse.

Source: docs/interface.md section D1.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.clock import follow_clock
from stoplist.errors import StoreUnavailable
from stoplist.limits.opening import open_limiter
from stoplist.links.events import LinkEvents
from stoplist.oauth.usage import Usage
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.positions import Positions
from stoplist.proof.worst_keys import WorstKeys
from stoplist.secret_key import secret_keys
from stoplist.server.start_checks import open_checked, prepare_start
from stoplist.settings import Settings
from stoplist.web.metrics import Metrics
from stoplist.web.parts import Parts
from stoplist.web.readiness import Readiness

_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def open_parts(settings: Settings, readiness: Readiness, *, is_worker: bool) -> AsyncIterator[Parts]:
    """Open what the application is made of; at the end write what was only noted, and close it all.

    The supervisor of a worker has prepared the start for all its workers. SettingsError if a part cannot be opened.
    """
    async with open_checked(settings) as database:
        clock, usage, link_events, positions = Clock(), Usage(), LinkEvents(), Positions()
        worst_keys = WorstKeys()
        if not is_worker:
            await prepare_start(settings, database)
        keys = secret_keys(settings)
        await follow_clock(clock, database)
        limiter = await open_limiter(settings.limits_url, clock)
        held = HeldRequests(database)
        try:
            yield Parts(
                database=database,
                clock=clock,
                limiter=limiter,
                usage=usage,
                metrics=Metrics(database, limiter, held, worst_keys),
                readiness=readiness,
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


async def _flush(name: str, flush: Callable[[Database], Awaitable[None]], database: Database) -> None:
    try:
        await flush(database)
    except StoreUnavailable as error:
        _LOG.error("What was noted in the last minute is lost", extra={"fields": {"what": name, "why": error.text}})
    except Exception:
        _LOG.exception("What was noted in the last minute is lost", extra={"fields": {"what": name}})
