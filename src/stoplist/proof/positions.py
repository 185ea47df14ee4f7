"""The positions of readers: noted in memory for each request, written once a minute and at shutdown.

A request writes nothing. One unit of work writes a feed; a feed that cannot be written is kept, and the others go on.
Source: docs/interface.md section D14, Propagation. Reasons: docs/decisions/0028-propagation.md.
"""

from collections.abc import Mapping

from stoplist.db import Database, Row, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.proof.follower import NEVER, Follower, asked, merged, presented, read_anew
from stoplist.unsubscribes.feed import Feed

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_followers"]
_ADD_POSITION = _QUERIES["add_position"]
_DROP_POSITIONS = _QUERIES["drop_outrun_positions"]
_LOCK = _QUERIES["lock_follower"]
_PUT = _QUERIES["put_followers"]
_FEED = load_queries("stoplist.unsubscribes")["feed"]

_MINUTE_MS = 60_000

Reader = tuple[str, int]
"""The `client_id` and the number of the group; 0 for the whole feed."""


class Positions:
    """The requests of readers since the last `flush`."""

    def __init__(self) -> None:
        self._noted: dict[int, dict[Reader, Follower]] = {}

    def note(self, feed: Feed, reader: Reader, position: int | None, *, now_ms: int) -> None:
        """Note that a reader has presented a cursor at `position`, or (None) rereads the whole feed."""
        generation = feed.generation
        told = (
            read_anew(generation, at_ms=now_ms) if position is None else presented(generation, position, at_ms=now_ms)
        )
        self._take(feed.feed_id, reader, told, generation)

    def note_read_ahead(self, feed: Feed, reader: Reader, *, now_ms: int) -> None:
        """Note that a reader has asked for a page before it has stored the one before."""
        self._take(feed.feed_id, reader, asked(at_ms=now_ms), feed.generation)

    async def flush(self, database: Database) -> None:
        """Write what was noted. What cannot be written is kept; the first error is raised once all feeds were tried."""
        noted, self._noted = self._noted, {}
        failure: Exception | None = None
        for feed_id, readers in sorted(noted.items()):
            try:
                await _write(database, feed_id, readers)
            except Exception as error:
                failure = failure or error
                for reader, told in readers.items():
                    newer = self._noted.get(feed_id, {}).get(reader, NEVER)
                    self._take(feed_id, reader, told, newer.generation or told.generation)
        if failure is not None:
            raise failure

    def _take(self, feed_id: int, reader: Reader, told: Follower, generation: str) -> None:
        readers = self._noted.setdefault(feed_id, {})
        readers[reader] = merged(readers.get(reader, NEVER), told, generation=generation)


def follower_of(row: Row) -> Follower:
    """Return the follower of a row of `feed_followers`."""
    return Follower(
        row["generation"],
        row["position"],
        row["presented_ms"],
        row["current_ms"],
        row["anew_ms"],
        row["anew_last_ms"],
        row["asked_ms"],
    )


async def _write(database: Database, feed_id: int, readers: Mapping[Reader, Follower]) -> None:
    async def write(transaction: Transaction) -> None:
        feed = await transaction.one(_FEED, feed_id=feed_id)
        if feed is None:
            return
        # In the same order everywhere, so that two processes that write the same rows never deadlock.
        keys = dict(enumerate(sorted(readers)))
        await transaction.run(_ADD, feed_id=feed_id, followers=json_text(keys))
        changed: dict[int, tuple[object, ...]] = {}
        for number, reader in keys.items():
            told = readers[reader]
            if told.position > feed["head_seq"]:
                told = asked(at_ms=told.asked_ms or 0)  # the database was restored since
            row = await transaction.one(_LOCK, feed_id=feed_id, client_id=reader[0], group_no=reader[1])
            stored = NEVER if row is None else follower_of(row)
            changed[number] = (*reader, *merged(stored, told, generation=feed["generation"]))
            if told.generation == feed["generation"] and _moves(stored, told):
                await _add_position(transaction, feed_id, reader, told, stored)
        await transaction.run(_PUT, feed_id=feed_id, followers=json_text(changed))

    await database.write(write, feed_id=feed_id)


def _moves(stored: Follower, told: Follower) -> bool:
    """Return whether `told` says of any position that it was presented earlier than is known."""
    if told.presented_ms is None or told.position == 0:
        return False
    is_known = stored.generation == told.generation and stored.presented_ms is not None
    return not (is_known and stored.position >= told.position and (stored.presented_ms or 0) <= told.presented_ms)


async def _add_position(
    transaction: Transaction, feed_id: int, reader: Reader, told: Follower, stored: Follower
) -> None:
    values = {"feed_id": feed_id, "client_id": reader[0], "group_no": reader[1], "position": told.position}
    presented_ms = told.presented_ms or 0
    minute = presented_ms // _MINUTE_MS
    await transaction.run(_ADD_POSITION, **values, minute=minute, presented_ms=presented_ms)
    if (stored.presented_ms or 0) > presented_ms:
        await transaction.run(_DROP_POSITIONS, **values, minute=minute)
