"""Copies a whole deployment from a SQLite file to PostgreSQL: all rows or none.

The target stays unusable until the last transaction: programs refuse a database with copy progress in it. The
credentials are copied in that transaction, in case a server already runs on the empty target. Rows are committed in
chunks with their progress, so an interrupted copy resumes.

The target may be a pair of databases. Then the copy begins with that of the accounts and ends with that of the feeds:
progress of the feeds alone says that the accounts are complete. Source: docs/interface.md section D9.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.databases.foreign_feeds import complete_owners, complete_uids
from stoplist.db.opening import single_server_lock
from stoplist.db.sharding import FEED_TABLES
from stoplist.errors import Refused
from stoplist.maintenance.copy.contents import Progress, Table
from stoplist.maintenance.copy.database_checks import check_databases, existing_file
from stoplist.maintenance.copy.source import Source, locked_source
from stoplist.maintenance.copy.tables import OWN_TABLES, dependency_order, require_same_tables, with_referrers
from stoplist.maintenance.copy.target import CopyTarget, open_target

# Two seconds of work. After each chunk, reading waits until PostgreSQL has stored it: with chunks of 50 000 rows this
# takes a tenth of the time. Memory holds only a slice of a chunk.
CHUNK_ROWS = 250_000

# Tables used to authenticate: they and all tables that refer to them are copied in the last transaction.
_CREDENTIAL_TABLES = frozenset(("clients", "people", "invitations"))

_START_OVER = "drop the target (each database of it), create an empty one with `stoplist migrate`, and copy again"


class Step(NamedTuple):
    """A step of the work on one table: `check` the rows of an interrupted copy, `copy`, or `verify`.

    `rows` of `all_rows` are done, over all tables of this kind of step.
    """

    doing: str
    table: str
    rows: int
    all_rows: int


class CopyResult(NamedTuple):
    """The rows in the target by table; `rows_before` of them were copied by an earlier, interrupted run."""

    environment: str
    rows: dict[str, int]
    rows_before: int


Report = Callable[[Step], None]


async def copy_deployment(
    actor: Actor,
    clock: Clock,
    *,
    source_url: str,
    target_url: str,
    feeds_url: str | None = None,
    report: Report,
    chunk_rows: int = CHUNK_ROWS,
) -> CopyResult:
    """Copy the deployment to the target and verify every row. What it issued (tokens, cursors, …) is valid there.

    With `feeds_url` the target is a pair of databases. Raise Refused, with the remedy, if the copy is not complete;
    then no program uses the target, and the same call resumes the copy. `report` is called for each step. The source is
    only read.
    """
    actor.require_administrator()
    path = existing_file(source_url)
    refusal = f"A server runs on {path}: stop it first, and leave it stopped afterwards."
    with single_server_lock(source_url, refusal=refusal), locked_source(path) as source:
        environment = await check_databases(source_url, target_url, feeds_url, clock)
        async with AsyncExitStack() as stack:
            accounts = await stack.enter_async_context(open_target(target_url))
            feeds = await stack.enter_async_context(open_target(feeds_url)) if feeds_url else accounts
            copy = await _prepare(source, accounts, feeds, report, chunk_rows)
            rows_before = await copy.run(actor, clock)
            return CopyResult(environment, copy.rows, rows_before)


class _Copy:
    """One run of the copy. The tables are ordered so that each row comes after the rows it refers to.

    `accounts` and `feeds` are the same, unless the target is a pair. `has_accounts`: an earlier run has completed the
    accounts, and ended before it completed the feeds.
    """

    def __init__(
        self,
        source: Source,
        accounts: CopyTarget,
        feeds: CopyTarget,
        *,
        tables: list[Table],
        progress: dict[str, Progress],
        has_accounts: bool,
        report: Report,
        chunk_rows: int,
    ) -> None:
        self._source, self._accounts, self._feeds = source, accounts, feeds
        self._report, self._chunk_rows = report, chunk_rows
        self._progress, self._has_accounts = progress, has_accounts
        self._tables = [table for table in tables if table.name in progress]
        self._last = [table for table in tables if table.name not in progress]
        self.rows = {table.name: source.rows(table) for table in tables}
        self._doing, self._done, self._all_rows = "", 0, 0

    async def run(self, actor: Actor, clock: Clock) -> int:
        """Copy what is missing, verify all of it and make the target usable; return how many rows were there before."""
        rows_before = await self.check()
        if self._has_accounts:
            self._require_unchanged_counts()
            rows_before = sum(self.rows.values())
        else:
            await self.copy()
            await self.verify()
            await self.complete(actor, clock)
        if self._feeds is not self._accounts:
            await self.complete_feeds()
        return rows_before

    async def check(self) -> int:
        """Return how many rows were copied before. Raise Refused if they have changed in the source since."""
        begun = [table for table in self._tables if self._progress[table.name].rows]
        self._begin("check", sum(self._progress[table.name].rows for table in begun))
        for table in begun:
            before = self._progress[table.name]
            reader = self._source.read(table, Progress(), to=before.last_rowid)
            if not reader.read_all(self._row_reporter(table)).matches(before):
                raise _changed_source(table)
        return self._all_rows

    async def copy(self) -> None:
        """Copy all rows except those of the last transaction."""
        self._begin("copy", sum(self.rows[table.name] for table in self._tables))
        self._done = sum(progress.rows for progress in self._progress.values())
        for table in self._tables:
            # Read to the end of the table, not to the count from an index: a damaged index is found in `verify`.
            is_whole = False
            while not is_whole:
                before = self._progress[table.name]
                reader = self._source.read(table, before, most=self._chunk_rows)
                self._progress[table.name] = await self._target_of(table).fill(table, reader, self._row_reporter(table))
                is_whole = self._progress[table.name].rows - before.rows < self._chunk_rows

    async def verify(self) -> None:
        """Raise Refused unless the target stores the same rows as the source."""
        self._begin("verify", sum(self.rows[table.name] for table in self._tables))
        for table in self._tables:
            self._row_reporter(table)(0)
            stored = await self._target_of(table).count_and_digest(table)
            self._require_same_rows(table, self._progress[table.name], stored)
            self._row_reporter(table)(self.rows[table.name])
        for target in dict.fromkeys((self._accounts, self._feeds)):
            await target.gather_statistics(table for table in self._tables if self._target_of(table) is target)

    async def complete(self, actor: Actor, clock: Clock) -> None:
        """Copy the remaining rows and make the target usable, or its accounts, in one transaction."""
        async with self._accounts.completion() as target:
            for table in self._last:
                reader = self._source.read(table, Progress())
                copied = await target.fill(table, reader, lambda _: None)
                self._require_same_rows(table, copied, await target.count_and_digest(table))
            await target.advance_identities(
                table for table in (*self._tables, *self._last) if self._target_of(table) is self._accounts
            )
            await target.copy_lasting_facts(self._source.lasting_facts())
            await complete_uids(target)
            await trail.record(
                target, actor, "database.copied", "database", at_ms=clock.now_ms(), rows=sum(self.rows.values())
            )

    async def complete_feeds(self) -> None:
        """Name the organization of each feed, and make the database of the feeds usable, in one transaction."""
        async with self._feeds.completion() as target:
            await complete_owners(self._accounts, target, target.run)

    def _target_of(self, table: Table) -> CopyTarget:
        return self._feeds if table.name in FEED_TABLES else self._accounts

    def _require_unchanged_counts(self) -> None:
        for table in self._tables:
            if self.rows[table.name] != self._progress[table.name].rows:
                raise _changed_source(table)

    def _begin(self, doing: str, all_rows: int) -> None:
        self._doing, self._done, self._all_rows = doing, 0, all_rows

    def _row_reporter(self, table: Table) -> Callable[[int], None]:
        def report_rows(rows: int) -> None:
            self._done += rows
            if self.rows[table.name]:
                self._report(Step(self._doing, table.name, self._done, self._all_rows))

        return report_rows

    def _require_same_rows(self, table: Table, read: Progress, stored: Progress) -> None:
        if read.rows != self.rows[table.name]:
            raise Refused(
                f"The source's table {table.name} is damaged: {self.rows[table.name]} rows are counted, but "
                f"{read.rows} can be read. Restore the newest backup of the source, then {_START_OVER}."
            )
        if not stored.matches(read):
            raise Refused(
                f"The table {table.name} differs between the databases: the source has {read.rows} rows with the "
                f"digest {read.digest}, the target {stored.rows} with {stored.digest}. Something changed the target "
                f"meanwhile: find out what, then {_START_OVER}."
            )


def _changed_source(table: Table) -> Refused:
    return Refused(
        f"The source's table {table.name} has changed since this copy was interrupted (or this is another source): "
        f"{_START_OVER}."
    )


async def _prepare(source: Source, accounts: CopyTarget, feeds: CopyTarget, report: Report, chunk_rows: int) -> _Copy:
    """Begin or resume a copy. Raise Refused if the databases do not have the same tables."""
    tables = dependency_order(await accounts.tables())
    columns = {name: columns for name, columns in source.tables().items() if name not in OWN_TABLES}
    for target in dict.fromkeys((accounts, feeds)):
        if await target.encoding() != "UTF8":
            raise Refused("The target's encoding is not UTF8: recreate it with ENCODING 'UTF8'.")
        require_same_tables(columns, await target.tables())
    last = with_referrers(_CREDENTIAL_TABLES, tables)
    first = [table for table in tables if table.name not in last]
    progress, has_accounts = await _begin_or_resume(accounts, feeds, first, empty=tables)
    return _Copy(
        source,
        accounts,
        feeds,
        tables=tables,
        progress=progress,
        has_accounts=has_accounts,
        report=report,
        chunk_rows=chunk_rows,
    )


async def _begin_or_resume(
    accounts: CopyTarget, feeds: CopyTarget, tables: list[Table], *, empty: list[Table]
) -> tuple[dict[str, Progress], bool]:
    """Return the progress by table, and whether the accounts are complete already. Begin, unless the copy was begun."""
    if feeds is accounts:
        return await accounts.progress() or await accounts.begin(tables, empty=empty), False
    # Read in this order and begun in the other, so that at the beginning the feeds never have progress alone.
    of_feeds, of_accounts = await feeds.progress(), await accounts.progress()
    has_accounts = bool(of_feeds) and not of_accounts
    if not of_feeds:
        await feeds.require_empty(empty)
        if not of_accounts:
            of_accounts = await accounts.begin(
                (table for table in tables if table.name not in FEED_TABLES), empty=empty
            )
        of_feeds = await feeds.begin((table for table in tables if table.name in FEED_TABLES), empty=empty)
    return of_accounts | of_feeds, has_accounts
