"""The PostgreSQL target: filled by binary COPY, each chunk of rows in one transaction with its progress."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from stoplist.db import Row
from stoplist.db.host_selection import Connector, PostgresqlConnection
from stoplist.db.postgresql_errors import translated_errors
from stoplist.db.query import Query, load_queries
from stoplist.errors import Refused, StoreUnavailable
from stoplist.maintenance.copy.contents import (
    FIRST_ROWID,
    Column,
    Progress,
    Table,
    digest_in_postgresql,
    quote_name,
)
from stoplist.maintenance.copy.source import TableReader

_QUERIES = load_queries(__package__)
_COLUMNS = _QUERIES["columns_of_target"]
_REFERENCES = _QUERIES["references_of_target"]
_PROGRESS = _QUERIES["progress"]
_BEGIN_TABLE = _QUERIES["begin_table"]
_CLAIM_TABLE = _QUERIES["claim_table"]
_ADVANCE_TABLE = _QUERIES["advance_table"]
_SET_LASTING_FACTS = _QUERIES["copy_lasting_facts"]
_FORGET_PROGRESS = _QUERIES["forget_progress"]

# Overrides a time limit of the role: the digest of a table of a billion rows takes an hour.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0"

ReportRows = Callable[[int], None]


class CopyTarget:
    """An open target. Methods raise Refused on failure; committed chunks stay, and the copy can be resumed."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def tables(self) -> list[Table]:
        """Return every table with its columns in order."""
        async with self._transaction():
            columns = await self._all(_COLUMNS)
            references = await self._all(_REFERENCES)
        names = dict.fromkeys(row["table_name"] for row in columns)
        return [
            Table(
                name,
                tuple(Column(*list(row.values())[1:]) for row in columns if row["table_name"] == name),
                frozenset(row["refers_to"] for row in references if row["table_name"] == name),
            )
            for name in names
        ]

    async def progress(self) -> dict[str, Progress]:
        """Return the progress of an interrupted copy by table; empty if none was begun."""
        async with self._transaction():
            rows = await self._all(_PROGRESS)
        return {row["table_name"]: Progress(*list(row.values())[1:]) for row in rows}

    async def encoding(self) -> str:
        """Return the encoding of the database."""
        async with self._transaction():
            return str(await self._connection.fetchval("SHOW server_encoding"))

    async def begin(self, tables: Iterable[Table], *, empty: Iterable[Table]) -> dict[str, Progress]:
        """Reserve this database for a copy of `tables`.

        Raise Refused if another copy began at the same time, or if a table that must be `empty` is not.
        """
        names = [table.name for table in tables]
        try:
            async with self._transaction():
                for name in names:
                    await self._run(_BEGIN_TABLE, table_name=name, last_rowid=FIRST_ROWID)
                # Checked last: another copy may have finished before the rows above could be written.
                await self._require_empty(empty)
        except asyncpg.UniqueViolationError:
            raise _copy_conflict() from None
        return dict.fromkeys(names, Progress())

    async def fill(self, table: Table, reader: TableReader, report_rows: ReportRows) -> Progress:
        """Store the rows of the reader and their progress, in one transaction."""
        async with self._transaction():
            if not await self._all(_CLAIM_TABLE, table_name=table.name, last_rowid=reader.progress.last_rowid):
                raise _copy_conflict()
            progress = await self._copy_rows(table, reader, report_rows)
            await self._run(
                _ADVANCE_TABLE,
                table_name=table.name,
                last_rowid=progress.last_rowid,
                copied_rows=progress.rows,
                digest=progress.digest,
            )
        return progress

    async def count_and_digest(self, table: Table) -> Progress:
        """Return the count and digest of the stored rows."""
        async with self._transaction():
            return await self._count_and_digest(table)

    async def gather_statistics(self, tables: Iterable[Table]) -> None:
        """Run ANALYZE, so that the first statements of a server are planned well."""
        async with self._transaction():
            for table in tables:
                await self._connection.execute(f"ANALYZE {quote_name(table.name)}")

    @asynccontextmanager
    async def completion(self) -> AsyncIterator["Completion"]:
        """Open the last transaction, which makes the database complete and usable."""
        async with self._transaction():
            if not await self._all(_PROGRESS):
                raise _copy_conflict()
            yield Completion(self._connection)
            await self._run(_FORGET_PROGRESS)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        with _as_refusals():
            await self._connection.execute(_BEGIN)
            try:
                yield
                await self._connection.execute("COMMIT")
            except BaseException:
                self._connection.terminate()
                raise

    async def _require_empty(self, tables: Iterable[Table]) -> None:
        for table in tables:
            if await self._connection.fetch(f"SELECT 1 FROM {quote_name(table.name)} LIMIT 1"):  # noqa: S608
                raise Refused(
                    f"The target is not empty (table {table.name}), and `stoplist copy` fills only an empty database. "
                    "If a copy into it has finished, there is nothing left to do; otherwise create an empty one with "
                    "`stoplist migrate`."
                )

    async def _copy_rows(self, table: Table, reader: TableReader, report_rows: ReportRows) -> Progress:
        names = [column.name for column in table.columns]
        try:
            await self._connection.copy_records_to_table(table.name, records=reader.records(report_rows), columns=names)
        except asyncpg.IntegrityConstraintViolationError as error:
            raise Refused(
                f"A row of the source's table {table.name} breaks the rule {error.constraint_name} of the schema: "
                "correct the source, then run this again."
            ) from None
        return reader.progress

    async def _count_and_digest(self, table: Table) -> Progress:
        # Not fetchrow: with a row limit PostgreSQL does not parallelise the query.
        (row,) = await self._connection.fetch(digest_in_postgresql(table))
        return Progress(rows=row["copied_rows"], digest=row["digest"])

    async def _all(self, query: Query, **values: Any) -> list[Row]:
        return await self._connection.fetch(query.postgresql, *_arguments(query, values))  # type: ignore[no-any-return]

    async def _run(self, query: Query, **values: Any) -> str:
        return await self._connection.execute(query.postgresql, *_arguments(query, values))  # type: ignore[no-any-return]


class Completion(CopyTarget):
    """The last transaction of a copy, usable like the transaction of a unit of work."""

    outbox_feed_id: int | None = None

    async def one(self, query: Query, **values: Any) -> Row | None:
        return await self._connection.fetchrow(query.postgresql, *_arguments(query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return await self._all(query, **values)

    async def run(self, query: Query, **values: Any) -> int:
        return int((await self._run(query, **values)).rsplit(" ", 1)[-1])

    async def pause(self) -> None:
        pass

    async def fill(self, table: Table, reader: TableReader, report_rows: ReportRows) -> Progress:
        """Store the rows of the reader."""
        return await self._copy_rows(table, reader, report_rows)

    async def count_and_digest(self, table: Table) -> Progress:
        return await self._count_and_digest(table)

    async def advance_identities(self, tables: Iterable[Table]) -> None:
        """Make identity columns continue after their highest value."""
        for table in tables:
            for column in table.columns:
                if column.is_identity:
                    await self._connection.fetch(_set_next_number(table, column), quote_name(table.name), column.name)

    async def copy_lasting_facts(self, facts: Mapping[str, Any]) -> None:
        """Set what lasts as long as the deployment to that of the source."""
        await self._run(_SET_LASTING_FACTS, **facts)


@asynccontextmanager
async def open_target(url: str) -> AsyncIterator[CopyTarget]:
    """Connect to the target without time limits and without prepared statements, which a pooler might mix up."""
    with _as_refusals():
        connection = await Connector(url, prepared=False)(connection_class=PostgresqlConnection, statement_cache_size=0)
    try:
        yield CopyTarget(connection)
    finally:
        connection.terminate()


def _set_next_number(table: Table, column: Column) -> str:
    return (
        f"SELECT setval(pg_get_serial_sequence($1, $2), highest) FROM "  # noqa: S608
        f"(SELECT max({quote_name(column.name)}) AS highest FROM {quote_name(table.name)}) t WHERE highest IS NOT NULL"
    )


def _copy_conflict() -> Refused:
    return Refused("Another `stoplist copy` is filling this database: let it finish.")


@contextmanager
def _as_refusals() -> Iterator[None]:
    try:
        with translated_errors():
            yield
    except StoreUnavailable as error:
        raise Refused(f"{error.text} What was copied so far is kept: run the same command again to resume.") from error


def _arguments(query: Query, values: dict[str, Any]) -> list[Any]:
    return [values[name] for name in query.parameters]
