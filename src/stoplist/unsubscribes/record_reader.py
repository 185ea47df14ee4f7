"""Reads the records that a batch meets, while the rest of the batch is still being checked."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from stoplist.db import HEAVY_ROWS, Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.unsubscribes.decision import CurrentRecord
from stoplist.unsubscribes.feed import Feed
from stoplist.unsubscribes.items import Act

_FIND_CURRENT_RECORDS = load_queries(__package__)["current_records"]
_CURRENT_RECORDS = msgspec.json.Decoder(list[CurrentRecord])


class RecordReader:
    """Reads the records that a batch meets, part by part, while the rest of the batch is validated.

    The parts may be of different moments. If that matters, the lock reveals that another batch was written.
    """

    def __init__(self, database: Database, feed: Feed | None, group_no: int) -> None:
        self._database, self._feed, self._group_no = database, feed, group_no
        self._parts: list[asyncio.Task[list[CurrentRecord]]] = []

    def start(self, acts: list[Act]) -> None:
        """Start to read the records of these acts. A feed that does not exist yet has none."""
        if self._feed is None:
            return
        feed_keys = {"feed_id": self._feed.feed_id, "group_no": self._group_no}
        read = self._database.one_large if len(acts) > HEAVY_ROWS else self._database.one
        self._parts.append(asyncio.create_task(read_current_records(read, feed_keys, acts)))

    async def records(self) -> dict[str, CurrentRecord]:
        """Return all records by address."""
        records: dict[str, CurrentRecord] = {}
        for part in self._parts:
            for record in await part:
                records.setdefault(record.address, record)
        return records

    async def end(self) -> None:
        """Wait until all reads have ended."""
        await asyncio.gather(*self._parts, return_exceptions=True)


async def read_current_records(
    read_row: Callable[..., Awaitable[Row | None]], feed_keys: dict[str, int], acts: list[Act]
) -> list[CurrentRecord]:
    # Sorted, because adjacent entries of the index are read together.
    addresses = sorted({act.address for act in acts})
    row = await read_row(_FIND_CURRENT_RECORDS, **feed_keys, addresses=json_text(addresses))
    records = row["records"] if row is not None else None
    return _CURRENT_RECORDS.decode(records) if records is not None else []
