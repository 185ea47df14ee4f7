"""A database that begins to write once it is told to, so that acts collect meanwhile."""

import asyncio
from typing import Any

from stoplist.db import Database, Unit


class BusyDatabase:
    """The given database, whose writes wait until `is_free` is set."""

    def __init__(self, database: Database) -> None:
        self._database, self.was_asked, self.is_free = database, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, unit: Unit[Any], **options: Any) -> Any:
        self.was_asked.set()
        await self.is_free.wait()
        return await self._database.write(unit, **options)
