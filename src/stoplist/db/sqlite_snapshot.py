"""One read transaction for the hottest reads of one turn of the event loop: two locks, instead of two for each read.

It begins with the first of these reads and ends before anything that is scheduled after that, since the loop runs
callbacks in the order in which they were scheduled. So a read sees everything that was committed, by whatever process,
before its request arrived or before the statement whose result it waited for.
"""

import asyncio
import sqlite3


class TurnSnapshot:
    """The read transaction of a connection that belongs to the event loop."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._loop = connection, asyncio.get_running_loop()
        self._cursor = connection.cursor()
        self._is_open = False

    def begin(self) -> None:
        """Begin a snapshot that ends with this turn, unless one has begun. May raise sqlite3.Error."""
        if not self._is_open:
            self._cursor.execute("BEGIN")
            self._is_open = True
            self._loop.call_soon(self.end)

    def end(self) -> None:
        """End the snapshot, if there is one."""
        if self._is_open and self._connection.in_transaction:  # an I/O error may have ended it
            self._cursor.execute("COMMIT")
        self._is_open = False
