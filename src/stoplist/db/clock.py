"""The clock of the database, which every host of a deployment follows.

Source: docs/interface.md section D1, Clock.
"""

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.split import feeds_of


async def follow_clock(clock: Clock, database: Database) -> None:
    """Set the clock to the time of the database, so that hosts agree; on SQLite it stays that of this machine."""
    asked_ms = clock.local_ms()
    database_ms = await database.clock_ms()
    if database_ms is not None:
        clock.follow(database_ms, asked_ms=asked_ms, answered_ms=clock.local_ms())
    if (feeds := feeds_of(database)) is not database:
        await feeds.clock_ms()  # notices a server that has become a standby
