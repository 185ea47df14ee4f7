"""The rows that an uploaded import left out, kept in the database: stored in the transaction of their part.

Source: docs/interface.md section D12, Bad rows.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.lists.imports.model import Import
from stoplist.lists.imports.part_reader import RejectedRow
from stoplist.slicing import in_slices, yield_to_loop

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_rejects"]
_AFTER = _QUERIES["rejects_after"]
_OF_FEED_AFTER = _QUERIES["rejects_of_feed_after"]
_REPLACE = _QUERIES["replace_rejects"]

_BEFORE_FIRST_ROW = -1


class StoredRejects:
    """Keeps the rejected rows of an import with its parts, up to `max_bytes` in all.

    From the first part on whose rows do not fit, none are kept, and the length that the import knows is negative.
    """

    def __init__(self, running: Import, *, max_bytes: int) -> None:
        self._kept_bytes, self._max_bytes = running.rejects_bytes, max_bytes
        self._waiting = ""

    async def append(self, rows: Sequence[RejectedRow]) -> int:
        """Take the rows of the next part; return the length of everything kept then, as `Import.rejects_bytes`."""
        self._waiting = ""
        if not rows or self._kept_bytes < 0:
            return self._kept_bytes
        lines: list[str] = []
        async for some in in_slices(rows):
            lines += map(_encoded, some)
        text = f"[{','.join(lines)}]"
        if self._kept_bytes + len(text) > self._max_bytes:
            self._kept_bytes = -1 - self._kept_bytes
        else:
            self._waiting = text
            self._kept_bytes += len(text)
        return self._kept_bytes

    async def store(self, transaction: Transaction, before: Import) -> None:
        """Write the rows of the part that begins where `before` ends."""
        if self._waiting:
            await transaction.run(
                _ADD,
                feed_id=before.feed_id,
                import_id=before.import_id,
                first_row=before.row_count,
                rejected=self._waiting,
            )


async def stored_rejects(database: Database, number: int, import_id: str) -> AsyncIterator[list[RejectedRow]]:
    """Yield the rejected rows that are kept of an import, in the order of the file."""
    first_row = _BEFORE_FIRST_ROW
    while (row := await database.one(_AFTER, feed_id=number, import_id=import_id, first_row=first_row)) is not None:
        yield [RejectedRow(*each) for each in _decoded(row["rejected"])]
        first_row = row["first_row"]


async def forget_rejects(database: Database, number: int, names_address: Callable[[str], bool]) -> int:
    """Delete from the rejected rows of a feed those with a cell that names the address; return how many there were.

    `names_address` says so of a cell as it stands in the file. May be repeated.
    """
    import_id, first_row, forgotten = "", _BEFORE_FIRST_ROW, 0
    while (
        row := await database.one(_OF_FEED_AFTER, feed_id=number, import_id=import_id, first_row=first_row)
    ) is not None:
        import_id, first_row = row["import_id"], row["first_row"]
        found = [RejectedRow(*each) for each in _decoded(row["rejected"])]
        kept = []
        async for some in in_slices(found):
            kept += [each for each in some if not any(map(names_address, each.cells))]
        if len(kept) < len(found):
            text = f"[{','.join(map(_encoded, kept))}]"
            await database.write_one(_REPLACE, feed_id=number, import_id=import_id, first_row=first_row, rejected=text)
            forgotten += len(found) - len(kept)
        await yield_to_loop()
    return forgotten


def _encoded(row: RejectedRow) -> str:
    # ASCII: a cell may hold half of a surrogate pair, which no database takes.
    return json.dumps((row.line, row.kind, row.text, list(row.cells)), separators=(",", ":"))


def _decoded(text: str) -> list[Any]:
    found: list[Any] = json.loads(text)
    return found
