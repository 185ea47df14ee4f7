"""The names of imported files, which may name a person. Source: docs/interface.md section D13, Erasure."""

from collections.abc import Callable, Sequence

from stoplist.db import Database, Transaction
from stoplist.db.query import json_text, load_queries

_QUERIES = load_queries(__package__)
_FORGET = (_QUERIES["forget_name_of_import"], _QUERIES["forget_name_of_upload"])
_NAMES = _QUERIES["file_names"]


async def forget_file_names(
    database: Database, feed_ids: Sequence[int], names_address: Callable[[str], bool]
) -> dict[str, int]:
    """Replace the file names that name an address, in these feeds; return the feed of each import by its id.

    `names_address` says so of a file name. May be repeated.
    """
    rows = await database.all(_NAMES, feed_ids=json_text(feed_ids))
    forgotten = {row["import_id"]: row["feed_id"] for row in rows if names_address(row["file_name"])}
    for import_id, feed_id in forgotten.items():
        await _forget(database, feed_id, import_id)
    return forgotten


async def _forget(database: Database, feed_id: int, import_id: str) -> None:
    async def forget(transaction: Transaction) -> None:
        for query in _FORGET:
            await transaction.run(query, feed_id=feed_id, import_id=import_id)

    await database.write(forget, feed_id=feed_id)
