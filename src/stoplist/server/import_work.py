"""The work of this process on imports that people requested on the pages.

Source: docs/interface.md section D12, On the pages.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.staff.rights import current_person
from stoplist.unsubscribes.model import OptOutStores

if TYPE_CHECKING:
    from stoplist.lists.uploads.worker import ImportWorker


class BackgroundImports:
    """Does work on imports from `load` until the process stops. Files have at most `max_mb` megabytes.

    `on_ended` is called with the outcome of each piece of work.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        max_mb: int,
        history_days: int = 0,
        on_ended: Callable[[str], None],
    ) -> None:
        self._stores = OptOutStores(database=database, clock=clock, secret_keys=(), history_days=history_days)
        self._max_mb, self._on_ended = max_mb, on_ended
        self._worker: ImportWorker | None = None

    async def load(self) -> None:
        """Load the reader of lists, without which a server starts faster; once.

        Call it when the pages are loaded, which import nearly all of it in steps.
        """
        if self._worker is not None:
            return
        from stoplist.lists.uploads.model import UploadLimits  # noqa: PLC0415 - a start needs none
        from stoplist.lists.uploads.worker import ImportWorker  # noqa: PLC0415 - a start needs none

        limits = UploadLimits.of_megabytes(self._max_mb)
        self._worker = ImportWorker(self._stores, limits, self._find_actor, on_ended=self._on_ended)

    @property
    def running(self) -> int:
        """Return how much work this process does now."""
        return 0 if self._worker is None else self._worker.running

    async def take_waiting(self) -> None:
        """Begin queued work within this process's capacity; a chore."""
        if self._worker is not None:
            await self._worker.take_waiting()

    async def delete_old_uploads(self) -> None:
        """Delete uploads that were not imported in time, and what is left of those that have ended; a chore."""
        if self._worker is not None:
            await self._worker.delete_old_uploads()

    @asynccontextmanager
    async def ended_at(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Release unfinished work to other processes when `stop` is set, and at the end of the context."""
        ending = asyncio.create_task(self._end_at(stop))
        try:
            yield
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            await self._end()

    async def _end_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._end()

    async def _end(self) -> None:
        if self._worker is not None:
            await self._worker.end()

    async def _find_actor(self, kind: str, actor_id: str) -> Actor:
        if kind != "person":  # nobody else requests work
            return Actor(kind=kind, id=actor_id)
        return await current_person(self._stores.database, actor_id)
