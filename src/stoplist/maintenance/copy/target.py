"""The PostgreSQL target: filled by binary COPY, each chunk of rows in one transaction with its progress."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from stoplist.db import Row
from stoplist.db.query import Query, load_queries
from stoplist.db.schema import later_release
from stoplist.errors import Refused
from stoplist.maintenance.copy.connection import LongConnection, LongTransaction, open_connection
from stoplist.maintenance.copy.contents import FIRST_ROWID, Progress, Table, quote_name
from stoplist.maintenance.copy.source import TableReader

_QUERIES = load_queries(__package__)
_PROGRESS = _QUERIES["progress"]
_BEGIN_TABLE = _QUERIES["begin_table"]
_CLAIM_TABLE = _QUERIES["claim_table"]
_ADVANCE_TABLE = _QUERIES["advance_table"]
_OLDEST_PROGRAM = _QUERIES["oldest_program_of_target"]
_SET_LASTING_FACTS = _QUERIES["copy_lasting_facts"]
_FORGET_PROGRESS = _QUERIES["forget_progress"]

ReportRows = Callable[[int], None]


class Filling(LongTransaction):
    """A transaction that stores rows."""

    async def fill(self, table: Table, reader: TableReader, report_rows: ReportRows) -> Progress:
        """Store the rows of the reader."""
        names = [column.name for column in table.columns]
        try:
            await self._connection.copy_records_to_table(table.name, records=reader.records(report_rows), columns=names)
        except asyncpg.IntegrityConstraintViolationError as error:
            raise Refused(
                f"A row of the source's table {table.name} breaks the rule {error.constraint_name} of the schema: "
                "correct the source, then run this again."
            ) from None
        return reader.progress

    async def copy_lasting_facts(self, facts: Mapping[str, Any]) -> None:
        """Set what lasts as long as the deployment to that of the source."""
        row = await self.one(_OLDEST_PROGRAM)
        if row is None:
            raise RuntimeError("the deployment row is gone")
        # The first erasure, or that the target is one of a pair, excludes older programs than the schema does.
        oldest = later_release(row["oldest_program"], facts["oldest_program"])
        await self.run(_SET_LASTING_FACTS, **{**facts, "oldest_program": oldest})


class CopyTarget(LongConnection):
    """An open target. Methods raise Refused on failure; committed chunks stay, and the copy can be resumed."""

    remedy = "What was copied so far is kept: run the same command again to resume."

    async def tables(self) -> list[Table]:
        """Return every table to copy with its columns in order."""
        async with self.transaction() as transaction:
            return await transaction.tables()

    async def all(self, query: Query) -> list[Row]:
        """Return the rows of a read."""
        async with self.transaction() as transaction:
            return await transaction.all(query)

    async def progress(self) -> dict[str, Progress]:
        """Return the progress of an interrupted copy by table; empty if none was begun."""
        rows = await self.all(_PROGRESS)
        return {row["table_name"]: Progress(*list(row.values())[1:]) for row in rows}

    async def encoding(self) -> str:
        """Return the encoding of the database."""
        async with self.transaction():
            return str(await self._connection.fetchval("SHOW server_encoding"))

    async def begin(self, tables: Iterable[Table], *, empty: Iterable[Table]) -> dict[str, Progress]:
        """Reserve this database for a copy of `tables`.

        Raise Refused if another copy began at the same time, or if a table that must be `empty` is not.
        """
        names = [table.name for table in tables]
        try:
            async with self.transaction() as transaction:
                for name in names:
                    await transaction.run(_BEGIN_TABLE, table_name=name, last_rowid=FIRST_ROWID)
                # Checked last: another copy may have finished before the rows above could be written.
                await self._require_empty(empty)
        except asyncpg.UniqueViolationError:
            raise _copy_conflict() from None
        return dict.fromkeys(names, Progress())

    async def require_empty(self, tables: Iterable[Table]) -> None:
        """Raise Refused unless the tables are empty."""
        async with self.transaction():
            await self._require_empty(tables)

    async def fill(self, table: Table, reader: TableReader, report_rows: ReportRows) -> Progress:
        """Store the rows of the reader and their progress, in one transaction."""
        async with self._filling() as transaction:
            if not await transaction.all(_CLAIM_TABLE, table_name=table.name, last_rowid=reader.progress.last_rowid):
                raise _copy_conflict()
            progress = await transaction.fill(table, reader, report_rows)
            await transaction.run(
                _ADVANCE_TABLE,
                table_name=table.name,
                last_rowid=progress.last_rowid,
                copied_rows=progress.rows,
                digest=progress.digest,
            )
        return progress

    async def count_and_digest(self, table: Table) -> Progress:
        """Return the count and digest of the stored rows."""
        async with self.transaction() as transaction:
            return await transaction.count_and_digest(table)

    async def gather_statistics(self, tables: Iterable[Table]) -> None:
        """Run ANALYZE, so that the first statements of a server are planned well."""
        async with self.transaction() as transaction:
            for table in tables:
                await transaction.execute(f"ANALYZE {quote_name(table.name)}")

    @asynccontextmanager
    async def completion(self) -> AsyncIterator[Filling]:
        """Open the last transaction, which makes the database complete and usable."""
        async with self._filling() as transaction:
            if not await transaction.all(_PROGRESS):
                raise _copy_conflict()
            yield transaction
            await transaction.run(_FORGET_PROGRESS)

    @asynccontextmanager
    async def _filling(self) -> AsyncIterator[Filling]:
        async with self.transaction():
            yield Filling(self._connection)

    async def _require_empty(self, tables: Iterable[Table]) -> None:
        for table in tables:
            if await self._connection.fetch(f"SELECT 1 FROM {quote_name(table.name)} LIMIT 1"):  # noqa: S608
                raise Refused(
                    f"The target is not empty (table {table.name}), and `stoplist copy` fills only an empty database. "
                    "If a copy into it has finished, there is nothing left to do; otherwise create an empty one with "
                    "`stoplist migrate`."
                )


@asynccontextmanager
async def open_target(url: str) -> AsyncIterator[CopyTarget]:
    """Connect to the target."""
    async with open_connection(url, remedy=CopyTarget.remedy) as connection:
        yield CopyTarget(connection)


def _copy_conflict() -> Refused:
    return Refused("Another `stoplist copy` is filling this database: let it finish.")
