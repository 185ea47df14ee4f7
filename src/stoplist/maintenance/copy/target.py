"""The PostgreSQL database that is filled: by binary COPY, each chunk of rows in one transaction with its progress."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
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
    quoted,
)
from stoplist.maintenance.copy.source import Reading

_QUERIES = load_queries(__package__)
_COLUMNS = _QUERIES["columns_of_target"]
_REFERENCES = _QUERIES["references_of_target"]
_PROGRESS = _QUERIES["progress"]
_BEGIN_TABLE = _QUERIES["begin_table"]
_CLAIM_TABLE = _QUERIES["claim_table"]
_ADVANCE_TABLE = _QUERIES["advance_table"]
_CARRY_OVER = _QUERIES["carry_over"]
_FORGET_PROGRESS = _QUERIES["forget_progress"]

# A role may have time limits of its own, and a table of a billion rows is reckoned up for an hour.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0"

Tell = Callable[[int], None]


class CopyTarget:
    """An open target. Refused when it fails: what was committed before stays, and the copy can go on there."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def tables(self) -> list[Table]:
        """Every table, with its columns in order."""
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
        """How far an interrupted copy came, by table; nothing where none was begun."""
        async with self._transaction():
            rows = await self._all(_PROGRESS)
        return {row["table_name"]: Progress(*list(row.values())[1:]) for row in rows}

    async def encoding(self) -> str:
        """In which encoding the database keeps texts."""
        async with self._transaction():
            return str(await self._connection.fetchval("SHOW server_encoding"))

    async def begin(self, tables: Iterable[Table], *, empty: Iterable[Table]) -> dict[str, Progress]:
        """From now on nothing but a copy of `tables` works on this database.

        Refused where another one began at the same time, or one of the tables that must be `empty` is not.
        """
        names = [table.name for table in tables]
        try:
            async with self._transaction():
                for name in names:
                    await self._run(_BEGIN_TABLE, table_name=name, last_rowid=FIRST_ROWID)
                # Only now: another copy may have come to its end before the rows above could be written.
                await self._must_be_empty(empty)
        except asyncpg.UniqueViolationError:
            raise _another() from None
        return dict.fromkeys(names, Progress())

    async def fill(self, table: Table, reading: Reading, tell: Tell) -> Progress:
        """The rows of this reading are stored, and how far that came; or neither."""
        async with self._transaction():
            if not await self._all(_CLAIM_TABLE, table_name=table.name, last_rowid=reading.progress.last_rowid):
                raise _another()
            progress = await self._copied(table, reading, tell)
            await self._run(
                _ADVANCE_TABLE,
                table_name=table.name,
                last_rowid=progress.last_rowid,
                copied_rows=progress.rows,
                digest=progress.digest,
            )
        return progress

    async def reckon_up(self, table: Table) -> Progress:
        """The number and digest of the rows that are stored."""
        async with self._transaction():
            return await self._reckoned_up(table)

    async def gather_statistics(self, tables: Iterable[Table]) -> None:
        """So that the first statements of a server need not wait for PostgreSQL to do it by itself."""
        async with self._transaction():
            for table in tables:
                await self._connection.execute(f"ANALYZE {quoted(table.name)}")

    @asynccontextmanager
    async def completing(self) -> AsyncIterator["Completion"]:
        """The last transaction: after it the database is whole, and no copy's any more."""
        async with self._transaction():
            if not await self._all(_PROGRESS):
                raise _another()
            yield Completion(self._connection)
            await self._run(_FORGET_PROGRESS)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        with _reported():
            await self._connection.execute(_BEGIN)
            try:
                yield
                await self._connection.execute("COMMIT")
            except BaseException:
                self._connection.terminate()
                raise

    async def _must_be_empty(self, tables: Iterable[Table]) -> None:
        for table in tables:
            if await self._connection.fetch(f"SELECT 1 FROM {quoted(table.name)} LIMIT 1"):  # noqa: S608
                raise Refused(
                    f"The target holds something already (in the table {table.name}), and only an empty database is "
                    "copied into. If a copy into it has finished, there is nothing left to do; else make an empty one "
                    "with `stoplist migrate`."
                )

    async def _copied(self, table: Table, reading: Reading, tell: Tell) -> Progress:
        names = [column.name for column in table.columns]
        try:
            await self._connection.copy_records_to_table(table.name, records=reading.records(tell), columns=names)
        except asyncpg.IntegrityConstraintViolationError as error:
            raise Refused(
                f"A row of the source's table {table.name} breaks the rule {error.constraint_name} of the schema: "
                "correct the source, then run this again."
            ) from None
        return reading.progress

    async def _reckoned_up(self, table: Table) -> Progress:
        # Not fetchrow: with a limit on the rows of its answer PostgreSQL reckons in one process.
        (row,) = await self._connection.fetch(digest_in_postgresql(table))
        return Progress(rows=row["copied_rows"], digest=row["digest"])

    async def _all(self, query: Query, **values: Any) -> list[Row]:
        return await self._connection.fetch(query.postgresql, *_in_order(query, values))  # type: ignore[no-any-return]

    async def _run(self, query: Query, **values: Any) -> str:
        return await self._connection.execute(query.postgresql, *_in_order(query, values))  # type: ignore[no-any-return]


class Completion(CopyTarget):
    """The last transaction, which is a unit of work too."""

    async def one(self, query: Query, **values: Any) -> Row | None:
        return await self._connection.fetchrow(query.postgresql, *_in_order(query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return await self._all(query, **values)

    async def run(self, query: Query, **values: Any) -> int:
        return int((await self._run(query, **values)).rsplit(" ", 1)[-1])

    async def pause(self) -> None:
        pass

    async def fill(self, table: Table, reading: Reading, tell: Tell) -> Progress:
        """The rows of this reading are stored."""
        return await self._copied(table, reading, tell)

    async def reckon_up(self, table: Table) -> Progress:
        return await self._reckoned_up(table)

    async def go_on_numbering(self, tables: Iterable[Table]) -> None:
        """What numbers its rows by itself goes on after the highest number."""
        for table in tables:
            for column in table.columns:
                if column.is_identity:
                    await self._connection.fetch(_go_on(table, column), quoted(table.name), column.name)

    async def carry_over(self, *, created_ms: int) -> None:
        """The deployment is as old as it was."""
        await self._run(_CARRY_OVER, created_ms=created_ms)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[CopyTarget]:
    """The target over a connection without time limits, which prepares nothing that outlives a transaction."""
    with _reported():
        connection = await Connector(url, prepared=False)(connection_class=PostgresqlConnection, statement_cache_size=0)
    try:
        yield CopyTarget(connection)
    finally:
        connection.terminate()


def _go_on(table: Table, column: Column) -> str:
    return (
        f"SELECT setval(pg_get_serial_sequence($1, $2), highest) FROM "  # noqa: S608
        f"(SELECT max({quoted(column.name)}) AS highest FROM {quoted(table.name)}) t WHERE highest IS NOT NULL"
    )


def _another() -> Refused:
    return Refused("Another `stoplist copy` fills the same database: let it finish.")


@contextmanager
def _reported() -> Iterator[None]:
    try:
        with translated_errors():
            yield
    except StoreUnavailable as error:
        raise Refused(f"{error.text} What was copied so far stays: run the same command again, it goes on.") from error


def _in_order(query: Query, values: dict[str, Any]) -> list[Any]:
    return [values[name] for name in query.parameters]
