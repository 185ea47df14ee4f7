"""A whole deployment moved from a SQLite file to PostgreSQL: all rows or, as far as anybody can see, none.

Until the last transaction the target is nobody's: programs refuse a database with progress in it, and the keys, by
which partners prove who they are, come in that transaction, for a server that ran on the empty target already. Rows go
in chunks, each with how far it came, so a copy that was interrupted goes on. Source: docs/interface.md section D9.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, schema
from stoplist.db.opening import open_database, single_server_lock, sqlite_path
from stoplist.errors import Refused, SettingsError
from stoplist.maintenance.copy.contents import Progress, Table, unknown_kinds
from stoplist.maintenance.copy.source import Source, held
from stoplist.maintenance.copy.tables import differing, in_order, with_referrers
from stoplist.maintenance.copy.target import CopyTarget, connected

# Two seconds' work. At the end of each chunk reading waits until PostgreSQL has stored it: with 50 000 rows a tenth of
# the time. Memory holds a slice of it.
CHUNK_ROWS = 250_000

# Each database has its own of these.
_OWN = frozenset(("deployment", "copy_progress"))
# Tables by which somebody proves who he is: with all that refer to them they come in the last transaction.
_OPENING = frozenset(("clients", "people"))

_BEGIN_ANEW = "drop the target database, make an empty one with `stoplist migrate`, and copy once more"


class Step(NamedTuple):
    """What is being done with which table: `check` what an interrupted copy left, `copy`, or `verify`.

    `rows` of `all_rows` are done, over all the tables of this kind of step.
    """

    doing: str
    table: str
    rows: int
    all_rows: int


class Copied(NamedTuple):
    """What is in the target now: rows by table; how many of them an interrupted copy had brought there."""

    environment: str
    rows: dict[str, int]
    rows_before: int


Report = Callable[[Step], None]


async def copy_deployment(
    actor: Actor, clock: Clock, *, source_url: str, target_url: str, report: Report, chunk_rows: int = CHUNK_ROWS
) -> Copied:
    """The deployment is in the target, verified row by row, and whatever it gave out is good there.

    Refused with the remedy otherwise; then no program works on the target, and the same call goes on where this one
    was. `report` is told of each step on the way. The source is only read.
    """
    actor.require_administrator()
    path = _existing_file(source_url)
    refusal = f"A server runs on {path}: stop it first, and leave it stopped afterwards."
    with single_server_lock(source_url, refusal=refusal), held(path) as source:
        environment = await _checked(source_url, target_url, clock)
        async with connected(target_url) as target:
            copy = await _prepared(source, target, report, chunk_rows)
            rows_before = await copy.check()
            await copy.copy()
            await copy.verify()
            await copy.complete(actor, clock)
            return Copied(environment, copy.rows, rows_before)


class _Copy:
    """One run: the tables to be copied, in an order in which each row finds those that it refers to."""

    def __init__(
        self,
        source: Source,
        target: CopyTarget,
        *,
        tables: list[Table],
        progress: dict[str, Progress],
        report: Report,
        chunk_rows: int,
    ) -> None:
        self._source, self._target, self._report, self._chunk_rows = source, target, report, chunk_rows
        self._progress = progress
        self._tables = [table for table in tables if table.name in progress]
        self._last = [table for table in tables if table.name not in progress]
        self.rows = {table.name: source.rows(table) for table in tables}
        self._doing, self._done, self._all_rows = "", 0, 0

    async def check(self) -> int:
        """How many rows are there already, which the source holds unchanged."""
        begun = [table for table in self._tables if self._progress[table.name].rows]
        self._begin("check", sum(self._progress[table.name].rows for table in begun))
        for table in begun:
            known = self._progress[table.name]
            reading = self._source.read(table, Progress(), to=known.last_rowid)
            if not reading.take(self._tell(table)).holds_the_same(known):
                raise Refused(
                    f"The source's table {table.name} is not what it was when this copy was interrupted (or it is "
                    f"another source): {_BEGIN_ANEW}."
                )
        return self._all_rows

    async def copy(self) -> None:
        """The target has all rows but those of the last transaction."""
        self._begin("copy", sum(self.rows[table.name] for table in self._tables))
        self._done = sum(progress.rows for progress in self._progress.values())
        for table in self._tables:
            # To the end of what can be read, not to the number that an index has: a damaged one is found below.
            is_whole = False
            while not is_whole:
                before = self._progress[table.name]
                reading = self._source.read(table, before, most=self._chunk_rows)
                self._progress[table.name] = await self._target.fill(table, reading, self._tell(table))
                is_whole = self._progress[table.name].rows - before.rows < self._chunk_rows

    async def verify(self) -> None:
        """What the target stores is what the source holds."""
        self._begin("verify", sum(self.rows[table.name] for table in self._tables))
        for table in self._tables:
            self._tell(table)(0)
            self._must_agree(table, self._progress[table.name], await self._target.reckon_up(table))
            self._tell(table)(self.rows[table.name])
        await self._target.gather_statistics(self._tables)

    async def complete(self, actor: Actor, clock: Clock) -> None:
        """The last rows are there, and the target is a deployment like any other."""
        async with self._target.completing() as target:
            for table in self._last:
                reading = self._source.read(table, Progress())
                copied = await target.fill(table, reading, lambda _: None)
                self._must_agree(table, copied, await target.reckon_up(table))
            await target.go_on_numbering((*self._tables, *self._last))
            await target.carry_over(created_ms=self._source.created_ms())
            await trail.record(
                target, actor, "database.copied", "database", at_ms=clock.now_ms(), rows=sum(self.rows.values())
            )

    def _begin(self, doing: str, all_rows: int) -> None:
        self._doing, self._done, self._all_rows = doing, 0, all_rows

    def _tell(self, table: Table) -> Callable[[int], None]:
        def tell(rows: int) -> None:
            self._done += rows
            if self.rows[table.name]:
                self._report(Step(self._doing, table.name, self._done, self._all_rows))

        return tell

    def _must_agree(self, table: Table, read: Progress, stored: Progress) -> None:
        if read.rows != self.rows[table.name]:
            raise Refused(
                f"The source's table {table.name} is damaged: {self.rows[table.name]} rows are counted, and "
                f"{read.rows} can be read. Restore the newest backup of the source, then {_BEGIN_ANEW}."
            )
        if not stored.holds_the_same(read):
            raise Refused(
                f"The table {table.name} is not the same in both databases: the source has {read.rows} rows with the "
                f"digest {read.digest}, the target {stored.rows} with {stored.digest}. Something changed the target "
                f"meanwhile: find out what, then {_BEGIN_ANEW}."
            )


def _existing_file(source_url: str) -> Path:
    path = sqlite_path(source_url)
    try:
        if path is not None and path.stat().st_size > 0:
            return path
    except OSError:
        pass
    raise SettingsError(f"--from: there is no Stoplist database at {path}.")


async def _checked(source_url: str, target_url: str, clock: Clock) -> str:
    """The environment of both databases, which are of this release's schema; `clock` follows the target's."""
    async with _opened("--from", source_url) as (source, _):
        pass
    async with _opened("--to", target_url) as (target, database):
        await _follow(clock, database)
    if source.environment != target.environment:
        raise SettingsError(
            f"The source belongs to the {source.environment} environment, the target to {target.environment}: make "
            f"the target anew, with STOPLIST_ENVIRONMENT={source.environment} for `stoplist migrate`."
        )
    return source.environment


@asynccontextmanager
async def _opened(option: str, url: str) -> AsyncIterator[tuple[schema.Deployment, Database]]:
    """What the database of this option remembers of itself; SettingsError where it is not of this release."""
    newest = schema.load_migrations()[-1].number
    try:
        database = await open_database(url, create=False, pool_size=2, prepared=False)
        try:
            known = await schema.read(database)
            if known is None:
                raise SettingsError("there is no Stoplist database: `stoplist migrate` makes one in an empty database.")
            # Whether a copy was begun is looked at later.
            schema.check(known._replace(is_incomplete=False), environment=None, newest=newest)
            if known.schema_version > newest:
                raise SettingsError(f"The database has schema {known.schema_version}: use the release that made it.")
            yield known, database
        finally:
            await database.close()
    except SettingsError as error:
        # What opens a database supposes that a setting named it.
        raise SettingsError(f"{option}: {error.text.replace('STOPLIST_DATABASE_URL', option)}") from None


async def _follow(clock: Clock, database: Database) -> None:
    asked_ms = clock.local_ms()
    database_ms = await database.clock_ms()
    if database_ms is not None:
        clock.follow(database_ms, asked_ms=asked_ms, answered_ms=clock.local_ms())


async def _prepared(source: Source, target: CopyTarget, report: Report, chunk_rows: int) -> _Copy:
    """A copy that is begun, or goes on; Refused where the two databases do not go together."""
    if await target.encoding() != "UTF8":
        raise Refused("The target keeps texts in another encoding than UTF8: make it anew with ENCODING 'UTF8'.")
    tables = in_order(table for table in await target.tables() if table.name not in _OWN)
    _must_match({name: columns for name, columns in source.tables().items() if name not in _OWN}, tables)
    progress = await target.progress()
    if not progress:
        last = with_referrers(_OPENING, tables)
        progress = await target.begin((table for table in tables if table.name not in last), empty=tables)
    return _Copy(source, target, tables=tables, progress=progress, report=report, chunk_rows=chunk_rows)


def _must_match(columns: dict[str, set[str]], tables: list[Table]) -> None:
    unlike = differing(columns, tables)
    if unlike:
        raise Refused(
            f"The two databases have not the same tables and columns ({', '.join(unlike)}), though both should be as "
            "`stoplist migrate` made them: remove from them what is not Stoplist's."
        )
    unknown = [table.name for table in tables if unknown_kinds(table)]
    if unknown:
        raise Refused(f"This release cannot copy all columns of the tables {', '.join(unknown)}.")
