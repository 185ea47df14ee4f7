"""A connection to PostgreSQL for work on whole tables: without time limits, in transactions that stay open for hours.

Nothing is prepared or set beyond a transaction, which a pooler might pass on to others.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from stoplist.db.host_selection import Connector, PostgresqlConnection
from stoplist.db.postgresql_errors import translated_errors
from stoplist.db.postgresql_transactions import PostgresqlTransaction
from stoplist.db.query import load_queries, statements
from stoplist.errors import Refused, StoreUnavailable
from stoplist.maintenance.copy.contents import Column, Progress, Table, digest_in_postgresql, quote_name
from stoplist.maintenance.copy.tables import OWN_TABLES

_QUERIES = load_queries(__package__)
_COLUMNS = _QUERIES["columns_of_target"]
_REFERENCES = _QUERIES["references_of_target"]

# Overrides time limits of the role: the digest of a table of a billion rows takes an hour.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; "
    "SET LOCAL idle_in_transaction_session_timeout = 0"
)


class LongTransaction(PostgresqlTransaction):
    """A transaction without time limits."""

    async def script(self, text: str) -> None:
        # One by one: Citus accepts no change of a distributed table in a message with other statements.
        for statement in statements(text):
            await self._connection.execute(statement)

    async def execute(self, statement: str) -> None:
        """Execute a statement that was generated from the catalogue."""
        await self._connection.execute(statement)

    async def tables(self) -> list[Table]:
        """Return every table with its columns in order, except those in which each database has rows of its own."""
        columns, references = await self.all(_COLUMNS), await self.all(_REFERENCES)
        names = dict.fromkeys(row["table_name"] for row in columns if row["table_name"] not in OWN_TABLES)
        return [
            Table(
                name,
                tuple(Column(*list(row.values())[1:]) for row in columns if row["table_name"] == name),
                frozenset(row["refers_to"] for row in references if row["table_name"] == name),
            )
            for name in names
        ]

    async def count_and_digest(self, table: Table) -> Progress:
        """Return the count and digest of the stored rows."""
        # Not fetchrow: with a row limit PostgreSQL does not parallelise the query.
        (row,) = await self._connection.fetch(digest_in_postgresql(table))
        return Progress(rows=row["copied_rows"], digest=row["digest"])

    async def advance_identities(self, tables: Iterable[Table]) -> None:
        """Make identity columns continue after their highest value."""
        for table in tables:
            for column in table.columns:
                if column.is_identity:
                    await self._connection.fetch(_set_next_number(table, column), quote_name(table.name), column.name)


class LongConnection:
    """An open connection. Methods raise Refused on failure, with `remedy` in its text."""

    remedy = "Nothing is half done: run the same command again."

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[LongTransaction]:
        """Open a transaction. An exception in the context undoes it, and ends the connection."""
        with _as_refusals(self.remedy):
            await self._connection.execute(_BEGIN)
            try:
                yield LongTransaction(self._connection)
                await self._connection.execute("COMMIT")
            except BaseException:
                self._connection.terminate()
                raise


@asynccontextmanager
async def open_connection(url: str, *, remedy: str = LongConnection.remedy) -> AsyncIterator[Any]:
    """Connect, and yield the connection of the driver."""
    with _as_refusals(remedy):
        connection = await Connector(url, prepared=False)(connection_class=PostgresqlConnection, statement_cache_size=0)
    try:
        yield connection
    finally:
        connection.terminate()


@contextmanager
def _as_refusals(remedy: str) -> Iterator[None]:
    try:
        with translated_errors():
            yield
    except StoreUnavailable as error:
        raise Refused(f"{error.text} {remedy}") from error


def _set_next_number(table: Table, column: Column) -> str:
    return (
        f"SELECT setval(pg_get_serial_sequence($1, $2), highest) FROM "  # noqa: S608
        f"(SELECT max({quote_name(column.name)}) AS highest FROM {quote_name(table.name)}) t "
        "WHERE highest > coalesce(pg_sequence_last_value(CAST(pg_get_serial_sequence($1, $2) AS regclass)), 0)"
    )
