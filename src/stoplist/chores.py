"""The periodic background work of a server, as one table.

Source: docs/interface.md sections D1 (Clock, HTTPS), D2 (Rotation), D8, D9, D11 to D14, D16.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from stoplist.clock import Clock
from stoplist.databases.foreign_feeds import watch_foreign_feeds
from stoplist.databases.moving import move_entries
from stoplist.db import Database
from stoplist.db.clock import follow_clock
from stoplist.errors import StoreUnavailable
from stoplist.limits.limiter import Limiter
from stoplist.links.events import LinkEvents
from stoplist.oauth.tokens import delete_expired
from stoplist.oauth.usage import Usage
from stoplist.proof.feed_states import complete_states
from stoplist.proof.positions import Positions
from stoplist.rights.retention import Retention, delete_old
from stoplist.staff.cleanup import delete_ended

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.05


class Chore(NamedTuple):
    """A coroutine function, its interval in seconds, and its name in the log."""

    name: str
    every_s: float
    work: Callable[[], Awaitable[None]]


def chores(
    *,
    database: Database,
    clock: Clock,
    limiter: Limiter,
    usage: Usage,
    positions: Positions,
    link_events: LinkEvents,
    renew_certificate: Callable[[], object],
    load_pages: Callable[[], Awaitable[None]],
    work_on_imports: Callable[[], Awaitable[None]],
    delete_old_uploads: Callable[[], Awaitable[None]],
    deliver_notices: Callable[[], Awaitable[None]],
    delete_old_notices: Callable[[], Awaitable[None]],
    watch_store: Callable[[], Awaitable[None]],
    measure_propagation: Callable[[], Awaitable[None]],
    measure_installation: Callable[[], Awaitable[None]],
    notify_of_keys_behind: Callable[[], Awaitable[None]],
    retention: Retention,
) -> list[Chore]:
    """Return everything that a server does in the background."""

    async def renew() -> None:
        renew_certificate()

    return [
        Chore("load a renewed certificate", 10, renew),
        # Not during the start, which would take twice as long. Once they are loaded nothing happens.
        Chore("load the pages", 3, load_pages),
        Chore("follow the database's clock", 30, lambda: follow_clock(clock, database)),
        Chore("write key usage", 60, lambda: usage.flush(database)),
        Chore("move entries from the outboxes of feeds", 5, lambda: move_entries(database)),
        Chore("look for feeds of other organizations", 60, lambda: watch_foreign_feeds(database)),
        Chore("write positions of readers", 60, lambda: positions.flush(database)),
        Chore("write counts of links", 60, lambda: link_events.flush(database)),
        Chore("reconnect to the limit store", 1, limiter.reconnect),
        Chore("forget idle rate limits", 60, limiter.sweep),
        Chore("delete expired tokens", 60, lambda: delete_all_expired(database, clock)),
        Chore("complete the states of feeds", 60, lambda: complete_states(database)),
        Chore("delete ended sessions", 60, lambda: delete_all_ended(database, clock)),
        Chore("work on imports", 1, work_on_imports),
        Chore("delete old uploads", 600, delete_old_uploads),
        Chore("deliver notices", 5, deliver_notices),
        Chore("delete old notices", 60, delete_old_notices),
        Chore("watch the database", 5, watch_store),
        Chore("measure propagation", 60, measure_propagation),
        Chore("measure the installation", 10, measure_installation),
        Chore("tell of keys behind", 300, notify_of_keys_behind),
        Chore("delete old history", 3_600, lambda: delete_all_old(database, clock, retention)),
    ]


@contextmanager
def running(table: list[Chore], *, on_defect: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Run the chores within the context, each for the first time after its interval.

    `on_defect` is called when one ends in an error of the program; it runs again after its interval all the same.
    """
    tasks = [asyncio.create_task(_repeat(chore, on_defect), name=chore.name) for chore in table]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def delete_all_expired(database: Database, clock: Clock) -> None:
    """Delete all expired token pairs in small batches, with pauses in which others can write."""
    while await delete_expired(database, clock.now_ms()):  # noqa: ASYNC110 - a pause, not a wait for an event
        await asyncio.sleep(_PAUSE_S)


async def delete_all_ended(database: Database, clock: Clock) -> None:
    """Delete all expired links, ended sessions and outdated sign-in attempts, in small batches likewise."""
    while await delete_ended(database, clock.now_ms()):  # noqa: ASYNC110 - a pause, not a wait for an event
        await asyncio.sleep(_PAUSE_S)


async def delete_all_old(database: Database, clock: Clock, retention: Retention) -> None:
    """Delete the history and the audit entries whose time has passed, in small steps likewise."""
    async for _ in delete_old(database, retention, clock.now_ms()):
        await asyncio.sleep(_PAUSE_S)


async def _repeat(chore: Chore, on_defect: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(chore.every_s)
        try:
            await chore.work()
        except StoreUnavailable as error:
            _LOG.warning("A chore will be tried again", extra={"fields": {"chore": chore.name, "why": error.text}})
        except Exception:
            _LOG.exception("A chore failed", extra={"fields": {"chore": chore.name}})
            on_defect()
