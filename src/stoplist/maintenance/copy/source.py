"""The SQLite file that is copied: read in slices, in the order of its rowids, while nobody else can write to it."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from stoplist.db.query import load_queries
from stoplist.db.sqlite import connect
from stoplist.errors import Refused
from stoplist.maintenance.copy.contents import Progress, Table, Values, first_unfit, quoted

_TABLES = load_queries(__package__)["tables_of_source"]

# About 5 ms of work: meanwhile COPY goes on with what lies in the socket's buffers.
_SLICE_ROWS = 1_000
_CACHE_KIB = 65_536
_LOCK_WAIT_MS = 5_000
_LAST_ROWID = 2**63 - 1
_BUSY = 5


class Source:
    """What the file holds. Refused where it cannot be read, or holds what PostgreSQL would not take."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tables(self) -> dict[str, set[str]]:
        """The names of the tables, and of the columns of each."""
        found: dict[str, set[str]] = {}
        with _readable():
            for table, column in self._connection.execute(_TABLES.sqlite):
                found.setdefault(table, set()).add(column)
        return found

    def rows(self, table: Table) -> int:
        """How many rows the table has."""
        with _readable():
            (number,) = self._connection.execute(f"SELECT COUNT(*) FROM {quoted(table.name)}").fetchone()  # noqa: S608
        return int(number)

    def created_ms(self) -> int:
        """When the deployment was made."""
        with _readable():
            (created_ms,) = self._connection.execute("SELECT created_ms FROM deployment").fetchone()
        return int(created_ms)

    def read(self, table: Table, start: Progress, *, most: int = sys.maxsize, to: int = _LAST_ROWID) -> "Reading":
        """The rows that follow, `most` at the most, up to the rowid `to`."""
        return Reading(self._slices(table, start.last_rowid, most, to), table, start)

    def _slices(self, table: Table, after: int, most: int, to: int) -> Iterator[list[Values]]:
        names = ", ".join(quoted(column.name) for column in table.columns)
        statement = (
            f"SELECT {names}, rowid FROM {quoted(table.name)}"  # noqa: S608
            " WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"
        )
        while most > 0 and (rows := self._fetched(statement, (after, to, min(most, _SLICE_ROWS)))):
            yield rows
            most -= len(rows)
            after = rows[-1][-1]

    def _fetched(self, statement: str, values: tuple[int, int, int]) -> list[Values]:
        with _readable():
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", None) is not None:
                    raise
        # Python's own refusal of a text that is not UTF-8: read it as it is, so that its row can be named.
        self._connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        with _readable():
            return self._connection.execute(statement, values).fetchall()


class Reading:
    """Rows of a table, read, checked and reckoned up as they are taken: `progress` is as far as they were taken."""

    def __init__(self, slices: Iterator[list[Values]], table: Table, start: Progress) -> None:
        self._slices, self._table = slices, table
        self.progress = start

    def records(self, tell: Callable[[int], None]) -> Iterator[Values]:
        """The rows, as the table has its columns, with the rowid behind them, which COPY does not look at.

        `tell` is told of each slice how many rows there were in it.
        """
        return chain.from_iterable(self._checked(tell))

    def take(self, tell: Callable[[int], None]) -> Progress:
        """Take all rows, for their number and digest alone."""
        for _ in self._checked(tell):
            pass
        return self.progress

    def _checked(self, tell: Callable[[int], None]) -> Iterator[list[Values]]:
        for rows in self._slices:
            *columns, rowids = zip(*rows, strict=True)
            unfit = first_unfit(self._table, columns)
            if unfit is not None:
                raise Refused(
                    f"The row {rowids[unfit]} of the source's table {self._table.name} holds a value that PostgreSQL "
                    "cannot store as it is (of another type, out of range, or a text with a zero byte or not in "
                    "UTF-8). Stoplist writes no such value: correct that row in the source, then run this again."
                )
            self.progress = self.progress.after(rowids[-1], columns, self._table)
            yield rows
            tell(len(rows))


@contextmanager
def held(path: Path) -> Iterator[Source]:
    """The source, which no program can write to as long as this lasts; Refused while one does."""
    with _readable():
        connection = connect(path, cache_kib=_CACHE_KIB)
    try:
        with _readable():
            connection.row_factory = None
            connection.execute(f"PRAGMA busy_timeout={_LOCK_WAIT_MS}").fetchall()
            connection.execute("BEGIN IMMEDIATE")
        yield Source(connection)
    finally:
        connection.close()


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == _BUSY:
            raise Refused(
                "Another command writes to the source at the moment: let it finish, then run this again."
            ) from None
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        raise Refused(
            f"The source cannot be read ({name}): if it is damaged, restore its newest backup, "
            "then copy that into an empty database."
        ) from None
