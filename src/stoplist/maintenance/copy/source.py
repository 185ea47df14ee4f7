"""The SQLite file to copy: read in slices by rowid, while nothing else can write to it."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from stoplist.db.query import load_queries
from stoplist.db.remedies import sqlite_remedy
from stoplist.db.sqlite_connection import BUSY, connect, primary_code
from stoplist.errors import Refused
from stoplist.maintenance.copy.contents import Progress, Table, Values, first_unstorable, quote_name

_TABLES = load_queries(__package__)["tables_of_source"]

# About 5 ms of work: meanwhile COPY works through the socket's buffers.
_SLICE_ROWS = 1_000
_CACHE_KIB = 65_536
_LOCK_WAIT_MS = 5_000
_LAST_ROWID = 2**63 - 1

_LASTING_FACTS = "SELECT created_ms, first_erasure_ms, oldest_program, reading_key FROM deployment"


class Source:
    """The locked source. Methods raise Refused if the file cannot be read or holds a value PostgreSQL cannot store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tables(self) -> dict[str, set[str]]:
        """Return the column names by table."""
        columns: dict[str, set[str]] = {}
        with _as_refusals():
            for table, column in self._connection.execute(_TABLES.sqlite):
                columns.setdefault(table, set()).add(column)
        return columns

    def rows(self, table: Table) -> int:
        """Return the number of rows in the table."""
        with _as_refusals():
            (number,) = self._connection.execute(f"SELECT COUNT(*) FROM {quote_name(table.name)}").fetchone()  # noqa: S608
        return int(number)

    def lasting_facts(self) -> dict[str, Any]:
        """Return when the deployment was created, and what its first erasure decided."""
        with _as_refusals():
            row = self._connection.execute(_LASTING_FACTS).fetchone()
        return dict(zip(("created_ms", "first_erasure_ms", "oldest_program", "reading_key"), row, strict=True))

    def read(self, table: Table, start: Progress, *, most: int = sys.maxsize, to: int = _LAST_ROWID) -> "TableReader":
        """Return a reader of the rows after `start`: `most` rows at most, up to the rowid `to`."""
        return TableReader(self._slices(table, start.last_rowid, most, to), table, start)

    def _slices(self, table: Table, after: int, most: int, to: int) -> Iterator[list[Values]]:
        names = ", ".join(quote_name(column.name) for column in table.columns)
        statement = (
            f"SELECT {names}, rowid FROM {quote_name(table.name)}"  # noqa: S608
            " WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"
        )
        while most > 0 and (rows := self._fetch(statement, (after, to, min(most, _SLICE_ROWS)))):
            yield rows
            most -= len(rows)
            after = rows[-1][-1]

    def _fetch(self, statement: str, values: tuple[int, int, int]) -> list[Values]:
        with _as_refusals():
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", None) is not None:
                    raise
        # Python refused a text that is not UTF-8. Read it undecoded, so that the error can name its row.
        self._connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        with _as_refusals():
            return self._connection.execute(statement, values).fetchall()


class TableReader:
    """Reads and checks rows of a table; `progress` covers the rows read so far."""

    def __init__(self, slices: Iterator[list[Values]], table: Table, start: Progress) -> None:
        self._slices, self._table = slices, table
        self.progress = start

    def records(self, report_rows: Callable[[int], None]) -> Iterator[Values]:
        """Yield the rows, in column order, followed by the rowid, which COPY ignores.

        `report_rows` is called with the number of rows of each slice.
        """
        return chain.from_iterable(self._checked_slices(report_rows))

    def read_all(self, report_rows: Callable[[int], None]) -> Progress:
        """Read all rows and return their count and digest."""
        for _ in self._checked_slices(report_rows):
            pass
        return self.progress

    def _checked_slices(self, report_rows: Callable[[int], None]) -> Iterator[list[Values]]:
        for rows in self._slices:
            *columns, rowids = zip(*rows, strict=True)
            unstorable = first_unstorable(self._table, columns)
            if unstorable is not None:
                raise Refused(
                    f"Row {rowids[unstorable]} of the source's table {self._table.name} holds a value that PostgreSQL "
                    "cannot store as it is (of another type, out of range, or a text with a zero byte or not in "
                    "UTF-8). Stoplist writes no such value: correct that row in the source, then run this again."
                )
            self.progress = self.progress.after(rowids[-1], columns, self._table)
            yield rows
            report_rows(len(rows))


@contextmanager
def locked_source(path: Path) -> Iterator[Source]:
    """Lock the source against writers within this context. Raise Refused while another program writes."""
    with _as_refusals():
        connection = connect(path, cache_kib=_CACHE_KIB)
    try:
        with _as_refusals():
            connection.row_factory = None
            connection.execute(f"PRAGMA busy_timeout={_LOCK_WAIT_MS}").fetchall()
            connection.execute("BEGIN IMMEDIATE")
        yield Source(connection)
    finally:
        connection.close()


@contextmanager
def _as_refusals() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if primary_code(error) == BUSY:
            raise Refused("Another command is writing to the source: let it finish, then run this again.") from None
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        raise Refused(
            f"The source cannot be read ({name}): {sqlite_remedy(primary_code(error))}. "
            "Copy a restored backup into an empty database."
        ) from None
