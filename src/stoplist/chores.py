"""The periodic background work of a server, as one table.

Source: docs/interface.md sections D1 (Clock, HTTPS), D2 (Rotation), D8, D9, D11.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.errors import StoreUnavailable
from stoplist.limits.limiter import Limiter
from stoplist.oauth.tokens import delete_expired
from stoplist.oauth.usage import Usage
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
    renew_certificate: Callable[[], object],
) -> list[Chore]:
    """Return everything that a server does in the background."""

    async def renew() -> None:
        renew_certificate()

    return [
        Chore("load a renewed certificate", 10, renew),
        Chore("follow the database's clock", 30, lambda: follow_clock(clock, database)),
        Chore("write key usage", 60, lambda: usage.flush(database)),
        Chore("reconnect to the limit store", 1, limiter.reconnect),
        Chore("forget idle rate limits", 60, limiter.sweep),
        Chore("delete expired tokens", 60, lambda: delete_all_expired(database, clock)),
        Chore("delete ended sessions", 60, lambda: delete_all_ended(database, clock)),
    ]


@contextmanager
def running(table: list[Chore]) -> Iterator[None]:
    """Run the chores within the context, each for the first time after its interval."""
    tasks = [asyncio.create_task(_repeat(chore), name=chore.name) for chore in table]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def follow_clock(clock: Clock, database: Database) -> None:
    """Set the clock to the time of the database, so that hosts agree; on SQLite it stays that of this machine."""
    asked_ms = clock.local_ms()
    database_ms = await database.clock_ms()
    if database_ms is not None:
        clock.follow(database_ms, asked_ms=asked_ms, answered_ms=clock.local_ms())


async def delete_all_expired(database: Database, clock: Clock) -> None:
    """Delete all expired token pairs in small batches, with pauses in which others can write."""
    while await delete_expired(database, clock.now_ms()):  # noqa: ASYNC110 - a pause, not a wait for an event
        await asyncio.sleep(_PAUSE_S)


async def delete_all_ended(database: Database, clock: Clock) -> None:
    """Delete all expired links, ended sessions and outdated sign-in attempts, in small batches likewise."""
    while await delete_ended(database, clock.now_ms()):  # noqa: ASYNC110 - a pause, not a wait for an event
        await asyncio.sleep(_PAUSE_S)


async def _repeat(chore: Chore) -> None:
    while True:
        await asyncio.sleep(chore.every_s)
        try:
            await chore.work()
        except StoreUnavailable as error:
            _LOG.warning("A chore will be tried again", extra={"fields": {"chore": chore.name, "why": error.text}})
        except Exception:
            _LOG.exception("A chore failed", extra={"fields": {"chore": chore.name}})
